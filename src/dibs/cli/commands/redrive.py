"""``dibs redrive``: bring dead jobs back."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Command
from dibs.cli.exits import Exit
from dibs.cli.output import first_line
from dibs.cli.progress import counting
from dibs.cli.session import Session, pass_session
from dibs.cli.types import DEAD_STATE, JOB_ID, PAST
from dibs.db import calls
from dibs.states import Answer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from dibs import Client
    from dibs.cli.output import Output
    from dibs.job import Redriven

BATCH = 500
SHOWN = 20
COLUMNS = ("id", "queue", "kind", "state", "answer", "reason")


@click.command(cls=Command, short_help="Bring dead jobs back; a dry run unless --yes.")
@click.argument("ids", type=JOB_ID, nargs=-1, metavar="[ID…]")
@click.option("--queue", help="Only of this queue.")
@click.option("--kind", help="Only of this kind.")
@click.option("--state", type=DEAD_STATE, help="Only those in this state; cancelled ones only with --state cancelled.")
@click.option("--reason", help="Only those whose reason is like this; % stands for anything.")
@click.option("--ended-after", type=PAST, help="Only those that ended since this time, or this long ago: 1h.")
@click.option("--ended-before", type=PAST, help="Only those that ended before this time, or longer ago than this.")
@click.option("--all", "everything", is_flag=True, help="All dead jobs but the cancelled.")
@click.option(
    "--max",
    "limit",
    type=click.IntRange(1, 100_000),
    default=1000,
    show_default=True,
    help="At most this many, those that ended first.",
)
@click.option("--rate", type=float, help="Spread them: how many become due per second.")
@click.option("--yes", is_flag=True, help="Do it. Without this nothing is changed.")
@pass_session
def redrive(
    session: Session, /, ids: tuple[UUID, ...], everything: bool, limit: int, rate: float | None, yes: bool,
    **filters: Any,
) -> Exit:  # fmt: skip
    """Bring dead jobs back, by id or by filter; their attempts and TTL start over.

    A filter leaves cancelled jobs alone, unless it is --state cancelled. A due time that is still ahead is kept.
    Without --yes it only says what it would do.
    """
    if not (ids or everything or any(filters.values())):
        raise click.UsageError("name jobs, or a filter such as --queue, or --all")
    if rate is not None and rate <= 0:
        raise click.UsageError("--rate is a number of jobs per second, above 0")
    with session.client() as client:
        asked = {name: _at(client, value) for name, value in filters.items()}
        found = client.redrive(ids or None, **asked, max=limit, dry_run=True)
        done = _bring_back(client, session.output, found, rate) if yes else found
    _report(session.output, done, limit, dry_run=not yes)
    return Exit.FAILED if ids and not found else Exit.OK


def _at(client: Client, value: Any) -> Any:
    # "An hour ago" is an hour before the database's now, which is what ended_at was written by.
    return client._run(calls.schema.now()) - value if isinstance(value, timedelta) else value


def _bring_back(client: Client, output: Output, found: Sequence[Redriven], rate: float | None) -> list[Redriven]:
    """Redrive what a dry run found, by id: a filter would find those that stay dead in every batch."""
    done: list[Redriven] = []
    with counting(output, "redriven", len(found)) as advance:
        for n in range(0, len(found), BATCH):
            ids = [job.id for job in found[n : n + BATCH]]
            done += client.redrive(ids, max=BATCH, rate=rate, delay=n / rate if rate else 0.0)
            advance(len(ids))
    return done


def _report(output: Output, jobs: Sequence[Redriven], limit: int, *, dry_run: bool) -> None:
    """Say what was, or would be, brought back."""
    counts = Counter(job.answer for job in jobs)
    if output.as_json:
        output.json({"dry_run": dry_run, "counts": dict(counts), "jobs": jobs})
        return
    if not jobs:
        output.say("no dead job matches")
        output.note("cancelled jobs come back by id, or with --state cancelled")
        return
    rows = [(j.id, j.queue, j.kind, j.was, j.answer, first_line(j.reason)) for j in jobs]
    output.table(COLUMNS, rows[:SHOWN])
    if len(rows) > SHOWN:
        output.say(f"… and {len(rows) - SHOWN} more")
    if dry_run:
        output.say(f"{len(jobs)} would be redriven; nothing was changed. Add --yes to do it.")
    else:
        output.say(f"{counts[Answer.REDRIVEN]} redriven", "green")
    if counts[Answer.DUPLICATE]:
        output.say(f"{counts[Answer.DUPLICATE]} stay dead: another job has their dedup key now", "yellow")
    if len(jobs) == limit:
        output.note(f"that is the most one call takes (--max {limit}); there may be more")
