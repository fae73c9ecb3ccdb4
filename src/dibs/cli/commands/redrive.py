"""``dibs redrive``: bring dead jobs back."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Command
from dibs.cli.exits import Exit
from dibs.cli.output import first_line
from dibs.cli.progress import COUNTING, counting
from dibs.cli.session import Session, pass_session
from dibs.cli.types import DEAD_STATE, JOB_ID, KIND, PAST, QUEUE, RATE
from dibs.db import calls
from dibs.states import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dibs import Client
    from dibs.cli.output import Output
    from dibs.cli.session import IdGiven
    from dibs.job import Redriven

BATCH = 1000
SHOWN = 20
KEPT = 1000
"""How many of the jobs are in the answer as JSON; all are counted."""
COLUMNS = ("id", "queue", "kind", "state", "?answer", "reason")


@click.command(cls=Command, short_help="Bring dead jobs back; a dry run unless --yes.")
@click.argument("ids", type=JOB_ID, nargs=-1, metavar="[ID…]")
@click.option("-q", "--queue", type=QUEUE, help="Only of this queue.")
@click.option("-k", "--kind", type=KIND, help="Only of this kind.")
@click.option("-s", "--state", type=DEAD_STATE, help="Only in this state; cancelled ones only with --state cancelled.")
@click.option("--reason", help="Only those whose reason is like this; % stands for anything.")
@click.option("--ended-after", type=PAST, help="Only those that ended since this time, or this long ago: 1h.")
@click.option("--ended-before", type=PAST, help="Only those that ended before this time, or longer ago than this.")
@click.option("--all", "everything", is_flag=True, help="All dead jobs but the cancelled.")
@click.option(
    "-n",
    "--max",
    "limit",
    type=click.IntRange(1, 100_000_000),
    default=1000,
    show_default=True,
    help="At most this many, those that ended first.",
)
@click.option("--rate", type=RATE, help="Spread them: how many become due, such as 50/m or 2/s.")
@click.option("-y", "--yes", is_flag=True, help="Do it. Without this nothing is changed.")
@pass_session
def redrive(
    session: Session, /, ids: tuple[IdGiven, ...], everything: bool, limit: int, rate: float | None, yes: bool,
    **filters: Any,
) -> Exit:  # fmt: skip
    """Bring dead jobs back, by id or by filter; their attempts and TTL start over.

    A filter leaves cancelled jobs alone, unless it is --state cancelled. A due time that is still ahead is kept.
    Without --yes it only says what it would do.
    """
    if not (ids or everything or any(filters.values())):
        raise click.UsageError("name jobs, or a filter such as --queue, or --all")
    done = Done()
    with session.client() as client:
        asked = {name: _at(client, value) for name, value in filters.items()}
        asked["ids"] = [session.job_id(client, id) for id in ids] or None
        # What came back may die again before we are done.
        asked["ended_before"] = asked["ended_before"] or _at(client, timedelta(milliseconds=-1))
        total = _total(client, asked, limit) if yes and not ids and not session.as_json else None
        with counting(session.output, "redriven" if yes else "found", total) as advance:
            for page in _pages(client, asked, limit, rate, dry_run=not yes):
                done.add(page)
                advance(len(page))
    _report(session.output, done, limit, dry_run=not yes)
    return Exit.FAILED if ids and not done.count else Exit.OK


@dataclass
class Done:
    """What was, or would be, brought back: how many of each answer, and the first of them."""

    counts: Counter[Answer] = field(default_factory=Counter)
    jobs: list[Redriven] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many there are."""
        return self.counts.total()

    def add(self, page: Sequence[Redriven]) -> None:
        """Count some more."""
        self.counts.update(job.answer for job in page)
        self.jobs += page[: KEPT - len(self.jobs)]


def _at(client: Client, value: Any) -> Any:
    # "An hour ago" is an hour before the database's now, which is what ended_at was written by.
    return client._run(calls.schema.now()) - value if isinstance(value, timedelta) else value


def _total(client: Client, asked: dict[str, Any], limit: int) -> int | None:
    """How many there are, if that can be counted soon."""
    count, until = 0, time.monotonic() + COUNTING
    for page in _pages(client, asked, limit, None, dry_run=True):
        count += len(page)
        if time.monotonic() > until:
            return None
    return count


def _pages(
    client: Client, asked: dict[str, Any], limit: int, rate: float | None, *, dry_run: bool
) -> Iterator[list[Redriven]]:
    """Short steps, each of which goes on where the last one ended: some of those that are found may stay dead."""
    count = 0
    while count < limit:
        delay = count / rate if rate else 0.0
        page = client.redrive(**asked, max=min(BATCH, limit - count), rate=rate, delay=delay, dry_run=dry_run)
        yield page
        count += len(page)
        if not page or asked["ids"]:
            return
        asked = {**asked, "ended_after": page[-1].ended_at, "after": page[-1].id}


def _report(output: Output, done: Done, limit: int, *, dry_run: bool) -> None:
    """Say what was, or would be, brought back."""
    counts = done.counts
    if output.as_json:
        output.json({"dry_run": dry_run, "counts": dict(counts), "jobs": done.jobs})
        return
    if not done.count:
        output.say("no dead job matches")
        output.note("cancelled jobs come back by id, or with --state cancelled")
        return
    output.table(COLUMNS, [(j.id, j.queue, j.kind, j.was, j.answer, first_line(j.reason)) for j in done.jobs[:SHOWN]])
    if done.count > SHOWN:
        output.say(f"… and {done.count - SHOWN} more")
    if dry_run:
        output.say(f"{done.count} would be redriven; nothing was changed. Add --yes to do it.")
    else:
        output.say(f"{counts[Answer.REDRIVEN]} redriven", "green")
    if counts[Answer.DUPLICATE]:
        output.say(f"{counts[Answer.DUPLICATE]} stay dead: another job has their dedup key now", "yellow")
    if done.count == limit:
        output.note(f"that is the most one call takes (--max {limit}); there may be more")
