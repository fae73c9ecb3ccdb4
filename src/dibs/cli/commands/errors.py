"""``dibs errors``: the log of operational errors, newest first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Command
from dibs.cli.output import first_line
from dibs.cli.session import Session, pass_session
from dibs.cli.types import DURATION, JOB_ID, PAST
from dibs.db import calls

if TYPE_CHECKING:
    from uuid import UUID

COLUMNS = (">number", "at", "source", "queue", "kind", "job", "reason")


@click.command(cls=Command)
@click.option("--job", type=JOB_ID, help="Only about this job.")
@click.option("--source", help="Only of this source: a function, a channel, …")
@click.option("--since", type=PAST, help="Only since this time, or this long ago: 1h.")
@click.option("--before", type=int, help="Only those before this number, to go on from a list's last one.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, help="At most this many.")
@click.option("--keep", type=DURATION, help="Change how long the log is kept, instead of showing it.")
@pass_session
def errors(
    session: Session,
    job: UUID | None,
    source: str | None,
    since: datetime | timedelta | None,
    before: int | None,
    limit: int,
    keep: timedelta | None,
) -> None:
    """Show the log of operational errors, newest first."""
    if keep is not None:
        _keep(session, keep)
        return
    after = datetime.now(UTC) - since if isinstance(since, timedelta) else since
    with session.client() as client:
        found = client._run(calls.channels.errors(job, source, after, before, limit))
    session.show(found, COLUMNS, _row, empty="no errors")
    if len(found) == limit:
        session.output.note(f"there may be more: --before {found[-1]['id']}")


def _row(e: dict[str, Any]) -> tuple[Any, ...]:
    return e["id"], e["at"], e["source"], e["queue"], e["kind"], e["job_id"], first_line(e["message"])


def _keep(session: Session, keep: timedelta) -> None:
    with session.client() as client:
        client._run(calls.channels.set_error_retention(keep))
    if session.as_json:
        session.output.json({"keep": keep})
    else:
        session.output.say("errors older than that will be deleted by the upkeep")
