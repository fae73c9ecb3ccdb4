"""``dibs jobs``: a list, newest first."""

from __future__ import annotations

from datetime import timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Command, limit_option
from dibs.cli.filters import filter_options, read_filter
from dibs.cli.output import first_line
from dibs.cli.session import Session, pass_session
from dibs.cli.types import JOB_ID
from dibs.progress import spoken
from dibs.states import WAITING
from dibs.units import spoken as spoken_duration

if TYPE_CHECKING:
    from datetime import datetime

    from dibs.cli.session import IdGiven
    from dibs.info import JobSummary
    from dibs.types import JobFilter

COLUMNS = ("id", "queue", "kind", "state", "?>attempts", "?due", "?expires", "?>priority", "?progress", "reason")

SOON = timedelta(days=2)
"""The list has a column with the expiry if one of its jobs expires within this time."""

PATIENCE = 10.0
"""Seconds after which a search that found too few says where it stopped."""


@click.command(cls=Command)
@filter_options
@limit_option
@click.option("--before", type=JOB_ID, help="Only those older than this job, to go on from a list's last one.")
@pass_session
def jobs(session: Session, /, limit: int, before: IdGiven | None, **given: Any) -> None:
    """List jobs, newest first: all, or those that a filter chooses."""
    with session.client() as client:
        oldest = None if before is None else session.job_id(client, before)
        filter = read_filter(session, client, given)
        found = client.find_jobs(filter, limit=limit, before=oldest, within=PATIENCE)
        now = client.now()
    kept = _columns(session, filter, found.jobs, now)
    columns, kept_values = [COLUMNS[n] for n in kept], itemgetter(*kept)
    session.show(found.jobs, columns, lambda j: kept_values(_row(j, now)), empty="no such jobs")
    if found.next is not None:
        searched = "" if len(found.jobs) == limit else f"looked at {found.looked} jobs; "
        session.output.note(f"{searched}there may be more: --before {found.next}")


def _columns(session: Session, filter: JobFilter, found: list[JobSummary], now: datetime) -> list[int]:
    """Return the columns. On a terminal leave out those that were filtered for, so that the reason has room."""
    dropped = set()
    if not any(j.state in WAITING and j.expire_at and j.expire_at - now <= SOON for j in found):
        dropped.add("?expires")
    if session.output.out.is_terminal:
        dropped |= filter.keys() & {"queue", "kind"}
        if len(filter.get("states", ())) == 1:
            dropped.add("state")
    return [n for n, column in enumerate(COLUMNS) if column not in dropped]


def _row(j: JobSummary, now: datetime) -> tuple[Any, ...]:
    attempts = None if j.attempts is None else f"{j.attempts}/{j.max_attempts}"
    last = spoken(j.progress), first_line(j.reason)
    return (j.id, j.queue, j.kind, j.state, attempts, j.due_at, _expires(j, now), j.priority, *last)


def _expires(j: JobSummary, now: datetime) -> str | None:
    if j.state not in WAITING or j.expire_at is None:
        return None
    return "now" if j.expire_at <= now else f"in {spoken_duration(j.expire_at - now)}"
