"""``dibs failures``: groups of similar failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Command, limit_option
from dibs.cli.filters import moment
from dibs.cli.session import Session, pass_session
from dibs.cli.types import KIND, PAST, QUEUE

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from dibs.types import FailureGroup

COLUMNS = ("fingerprint", ">failures", "last", "?raised in", "?kinds", "?queues", "?first", "message")


@click.command(cls=Command)
@click.option("-q", "--queue", type=QUEUE, help="Only of this queue.")
@click.option("-k", "--kind", type=KIND, help="Only of this kind.")
@click.option("--since", type=PAST, help="Only those that happened since this time, or this long ago: 1h.")
@limit_option
@pass_session
def failures(
    session: Session, queue: str | None, kind: str | None, since: datetime | timedelta | None, limit: int
) -> None:
    """Group similar failures, the latest first: the same exception, message and place in your code."""
    with session.client() as client:
        found = client.failures.list(queue=queue, kind=kind, since=moment(client, since), limit=limit)
    session.show(found, COLUMNS, _row, empty="no failures; a worker or dibs maintain counts them every few seconds")
    if found:
        session.output.note(f"bring those of a group back: dibs retry --failure {found[0].fingerprint}")


def _row(g: FailureGroup) -> tuple[Any, ...]:
    kinds, queues = ", ".join(g.kinds), ", ".join(g.queues)
    error = ": ".join(filter(None, (g.error, g.message)))
    return g.fingerprint, g.failures, g.last_at, g.frame, kinds, queues, g.first_at, error
