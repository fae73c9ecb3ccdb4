"""The command itself: which database, which display."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING

import click

from dibs.cli.command import Command
from dibs.cli.commands.demo.dashboard import show
from dibs.cli.commands.demo.display import showing
from dibs.cli.commands.demo.plan import FEWEST, MOST
from dibs.cli.commands.demo.story import Story
from dibs.cli.commands.demo.tally import Tally
from dibs.cli.commands.demo.verdict import Verdict, judge, summarize
from dibs.cli.exits import Exit
from dibs.cli.session import Session, pass_session
from dibs.client.client_async import AsyncClient
from dibs.db.schema import migrate
from dibs.embedded import UNSAFE_FAST, Server, ensure_running
from dibs.errors import DibsError
from dibs.runtime import end

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from dibs.cli.output import Output

GONE = (
    ("dibs demo --web", "the same in a dashboard, with jobs coming in"),
    ("dibs demo --keep-running", "on a PostgreSQL that keeps running"),
    ("dibs migrate", "install dibs in your database (--dsn or DIBS_DSN)"),
    ("dibs enqueue mail welcome '{\"user\": 42}'", "put a job in"),
    ("dibs --help", "everything else"),
)
STAYS = (
    ("dibs queues{dsn}", "the queues and how much is in each"),
    ("dibs jobs --state cancelled{dsn}", "the job that was cancelled"),
    ("dibs show ID{dsn}", "everything known of a job, with its attempts"),
    ("dibs enqueue mail welcome '{{\"user\": 42}}'{dsn}", "put a job in"),
)


@click.command(cls=Command)
@click.option("--jobs", type=click.IntRange(FEWEST, MOST), default=300, show_default=True, help="How many jobs.")
@click.option("--keep-running", is_flag=True, help="Use the shared embedded PostgreSQL, and leave it running.")
@click.option("--web", is_flag=True, help="Show it in the dashboard, with jobs coming in until Ctrl-C.")
@click.option("--port", default=8321, show_default=True, help="The port of the dashboard; 0 takes a free one.")
@pass_session
def demo(session: Session, jobs: int, keep_running: bool, web: bool, port: int) -> int:
    """Watch a few hundred jobs live their lives.

    Uses a throwaway PostgreSQL, whatever DIBS_DSN says; with --dsn your own database, with dibs installed.
    """
    with _database(session, keep_running, {} if web else UNSAFE_FAST) as dsn:  # The doctor would find these settings.
        if web:
            show(session, dsn, port)
            return Exit.OK
        verdict = _play(dsn, jobs, session.output)
    if session.as_json:
        session.output.json(verdict.as_json())
    else:
        summarize(session.output, verdict, _next_steps(session, keep_running))
    return Exit.FAILED if verdict.wrong else Exit.OK


@contextmanager
def _database(session: Session, keep_running: bool, settings: Mapping[str, str]) -> Iterator[str]:
    if session.dsn:
        yield session.dsn
        return
    with ExitStack() as stack:
        with _waiting(session.output, f"starting a {'' if keep_running else 'throwaway '}PostgreSQL"):
            throw_away = Server.temporary(settings=settings)
            server = ensure_running() if keep_running else stack.enter_context(throw_away)
            migrate(server.dsn())
        yield server.dsn()


def _waiting(output: Output, what: str) -> AbstractContextManager[object]:
    if output.out.is_terminal and not output.as_json:
        return output.out.status(f"{what} …")
    output.note(f"{what} …")
    return nullcontext()


def _play(dsn: str, jobs: int, output: Output) -> Verdict:
    tally = Tally()

    async def play() -> Verdict:
        async with AsyncClient(dsn) as client:
            story = Story(client, tally)
            await story.play(jobs)
            return judge(tally, story.kinds, [s.state for s in await client.status_many(list(story.kinds))])

    async def play_until_stopped() -> Verdict:
        playing = asyncio.create_task(play())
        try:
            await asyncio.wait({playing})
        finally:
            await end({playing})
        return playing.result()

    with showing(output, tally):
        try:
            return asyncio.run(play_until_stopped())
        except BaseExceptionGroup as group:
            # A task of the worker failed, and the others were stopped: the first one says why.
            known = group.subgroup(DibsError)
            raise (known or group).exceptions[0] from group


def _next_steps(session: Session, keep_running: bool) -> Sequence[tuple[str, str]]:
    if not (session.dsn or keep_running):
        return GONE
    dsn = " --dsn …" if session.dsn else ""
    return [(command.format(dsn=dsn), what) for command, what in STAYS]
