"""``dibs jobs``: a list, newest first."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Command
from dibs.cli.output import first_line
from dibs.cli.session import Session, pass_session
from dibs.cli.types import JOB_ID, STATES_OF
from dibs.progress import spoken

if TYPE_CHECKING:
    from uuid import UUID

    from dibs.info import JobSummary

COLUMNS = ("id", "queue", "kind", "state", ">priority", "due", ">attempts", "progress", "reason")


@click.command(cls=Command)
@click.option("--queue", help="Only of this queue.")
@click.option("--kind", help="Only of this kind.")
@click.option("--state", "states", type=STATES_OF, multiple=True, help="Only in this state; dead for all dead ones.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, help="At most this many.")
@click.option("--before", type=JOB_ID, help="Only those older than this job, to go on from a list's last one.")
@pass_session
def jobs(
    session: Session, queue: str | None, kind: str | None, states: tuple[list[str], ...], limit: int,
    before: UUID | None,
) -> None:  # fmt: skip
    """List jobs, newest first."""
    with session.client() as client:
        found = client.jobs(queue=queue, kind=kind, state=[*chain(*states)] or None, limit=limit, before=before)
    session.show(found, COLUMNS, _row, empty="no such jobs")
    if len(found) == limit:
        session.output.note(f"there may be more: --before {found[-1].id}")


def _row(j: JobSummary) -> tuple[Any, ...]:
    attempts = None if j.attempts is None else f"{j.attempts}/{j.max_attempts}"
    told = spoken(j.progress), first_line(j.reason)
    return (j.id, j.queue, j.kind, j.state, j.priority, j.due_at, attempts, *told)
