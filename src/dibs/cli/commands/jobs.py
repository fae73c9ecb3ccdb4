"""``dibs jobs``: a list, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Command, limit_option
from dibs.cli.filters import filter_options, read_filter
from dibs.cli.output import first_line
from dibs.cli.session import Session, pass_session
from dibs.cli.types import JOB_ID
from dibs.progress import spoken
from dibs.types import Found

if TYPE_CHECKING:
    from uuid import UUID

    from dibs import Client
    from dibs.cli.session import IdGiven
    from dibs.info import JobSummary
    from dibs.types import JobFilter

COLUMNS = ("id", "queue", "kind", "state", "?>attempts", "?due", "?>priority", "?progress", "reason")

PAGES = 20
"""How often a search that found too few goes on, before it says where it stopped."""


@click.command(cls=Command)
@filter_options
@limit_option
@click.option("--before", type=JOB_ID, help="Only those older than this job, to go on from a list's last one.")
@pass_session
def jobs(session: Session, /, limit: int, before: IdGiven | None, **given: Any) -> None:
    """List jobs, newest first: all, or those that a filter chooses."""
    with session.client() as client:
        oldest = None if before is None else session.job_id(client, before)
        found = _find(client, read_filter(session, client, given), limit, oldest)
    session.show(found.jobs, COLUMNS, _row, empty="no such jobs")
    if found.next is not None:
        far = "" if len(found.jobs) == limit else f"looked at {found.looked} jobs; "
        session.output.note(f"{far}there may be more: --before {found.next}")


def _find(client: Client, filter: JobFilter, limit: int, before: UUID | None) -> Found:
    found = Found([], 0, before)
    for _ in range(PAGES):
        page = client.find_jobs(filter, limit=limit - len(found.jobs), before=found.next)
        found = Found([*found.jobs, *page.jobs], found.looked + page.looked, page.next)
        if page.next is None or len(found.jobs) >= limit:
            break
    return found


def _row(j: JobSummary) -> tuple[Any, ...]:
    attempts = None if j.attempts is None else f"{j.attempts}/{j.max_attempts}"
    told = spoken(j.progress), first_line(j.reason)
    return (j.id, j.queue, j.kind, j.state, attempts, j.due_at, j.priority, *told)
