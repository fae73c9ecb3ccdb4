"""The command, its database, and the dashboard of ``--web``."""

from __future__ import annotations

import asyncio
import random
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Command
from dibs.cli.commands.demo.display import showing, summarize
from dibs.cli.commands.demo.shop import FEWEST, KINDS, MOST, POLICY, QUEUES, Mishap, make_app
from dibs.cli.commands.demo.story import Story
from dibs.cli.commands.demo.tally import Tally
from dibs.cli.commands.web import listening, server_of, tell
from dibs.cli.exits import Exit
from dibs.cli.session import Session, pass_session
from dibs.cli.types import PORT
from dibs.client.client_async import AsyncClient
from dibs.db.schema import migrate
from dibs.embedded import UNSAFE_FAST, Server, ensure_running
from dibs.errors import DibsError
from dibs.runtime import end

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from socket import socket

    from dibs.cli.output import Output

AFTER_THROWAWAY = """
  dibs demo --web           jobs that come in, in a dashboard
  dibs demo --keep-running  the demo on a PostgreSQL that keeps running
  dibs migrate              install dibs in your database (--dsn or DIBS_DSN)
  dibs --help               all commands"""
AFTER = """
  dibs queues                  the queues and the number of jobs in each
  dibs jobs --state cancelled  the job that was cancelled
  dibs show ID                 everything known of a job, with its attempts"""
FED = [kind for kind in KINDS if kind.mishap in {Mishap.NONE, Mishap.FLAKY, Mishap.EARLY, Mishap.HOPELESS}]
"""The kinds of jobs in the dashboard: only one of them fails until somebody retries it."""


@click.command(cls=Command)
@click.option("--jobs", type=click.IntRange(FEWEST, MOST), default=300, show_default=True, help="Number of jobs.")
@click.option("--keep-running", is_flag=True, help="Use the shared embedded PostgreSQL, and leave it running.")
@click.option("--web", is_flag=True, help="Show it in the dashboard, with jobs coming in until Ctrl-C.")
@click.option(
    "--port", type=PORT, default=8321, show_default=True, help="The port of the dashboard; 0 takes a free one."
)
@pass_session
def demo(session: Session, jobs: int, keep_running: bool, web: bool, port: int) -> int:
    """Watch a few hundred jobs from their enqueue to their end.

    Uses a throwaway PostgreSQL, whatever DIBS_DSN says; with --dsn your own database, with dibs installed.
    """
    with _database(session, keep_running, web) as dsn:
        if web:
            with listening("127.0.0.1", port) as listener:
                tell(session, listener, "", write=True)
                session.output.note("one task fails: find out which and why, and retry it; Ctrl-C ends the demo")
                with suppress(KeyboardInterrupt):
                    asyncio.run(_serve(dsn, listener))
            return Exit.OK
        summary = _play(dsn, jobs, session.output)
    if session.as_json:
        session.output.json(summary)
    else:
        summarize(session.output, summary, AFTER if session.dsn or keep_running else AFTER_THROWAWAY)
    return Exit.OK if summary["ok"] else Exit.FAILED


@contextmanager
def _database(session: Session, keep_running: bool, web: bool) -> Iterator[str]:
    if session.dsn:
        yield session.dsn
        return
    with ExitStack() as stack:
        with _waiting(session.output, f"starting a {'' if keep_running else 'throwaway '}PostgreSQL …"):
            # The dashboard shows what the doctor finds, and it would find the fast settings.
            throwaway = Server.temporary(settings={} if web else UNSAFE_FAST)
            server = ensure_running() if keep_running else stack.enter_context(throwaway)
            migrate(server.dsn())
        yield server.dsn()


def _waiting(output: Output, text: str) -> AbstractContextManager[object]:
    if output.out.is_terminal and not output.as_json:
        return output.out.status(text)
    output.note(text)
    return nullcontext()


def _play(dsn: str, jobs: int, output: Output) -> dict[str, Any]:
    tally = Tally(jobs)

    async def play() -> dict[str, Any]:
        async with AsyncClient(dsn) as client:
            return tally.summary(tally.errors(await Story(client, tally).play(dsn)))

    async def play_until_interrupted() -> dict[str, Any]:
        playing = asyncio.create_task(play())
        try:
            await asyncio.wait({playing})
        finally:
            await end({playing})
        return playing.result()

    with showing(output, tally):
        try:
            return asyncio.run(play_until_interrupted())
        except BaseExceptionGroup as group:
            # One task failed, and the others were stopped because of it.
            known = group.subgroup(DibsError)
            raise (known or group).exceptions[0] from group


async def _serve(dsn: str, listener: socket) -> None:
    """Serve the dashboard beside a worker and a loop that enqueues jobs."""
    from dibs.web.access import from_this_machine
    from dibs.web.app import app

    server = server_of(app(dsn, authorize=from_this_machine(write=True), poll=1.0))
    shop = make_app(dsn, 1.0)
    async with AsyncClient(dsn) as client:
        beside = {asyncio.create_task(shop.arun_worker(slots=8, grace=1.0)), asyncio.create_task(_feed(client))}
        for task in beside:
            task.add_done_callback(lambda _: setattr(server, "should_exit", True))
        try:
            await server.serve([listener])
        finally:
            for task in beside:
                task.cancel()
            ended = await asyncio.gather(*beside, return_exceptions=True)
            await shop.aclose()
    for error in ended:
        if isinstance(error, Exception):
            raise error


async def _feed(client: AsyncClient) -> None:
    """Enqueue jobs now and then, and keep the charts up to date."""
    for queue in QUEUES:
        await client.queues.set(queue, **POLICY)
    number = 0
    while True:
        now = await client.now()
        for _ in range(random.choice((0, 1, 1, 2, 4)) if number else 40):  # noqa: S311
            number += 1
            [kind] = random.choices(FED, [kind.percent for kind in FED])  # noqa: S311
            await client.enqueue_many([kind.job(number, now)])
        await client.upkeep.roll_up()
        await asyncio.sleep(random.uniform(0.3, 0.9))  # noqa: S311
