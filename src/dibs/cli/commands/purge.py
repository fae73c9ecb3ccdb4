"""``dibs purge``: delete a queue's waiting jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dibs.cli.bulk import change
from dibs.cli.command import Command
from dibs.cli.session import Session, pass_session
from dibs.cli.types import QUEUE

if TYPE_CHECKING:
    from dibs.cli.exits import Exit


@click.command(cls=Command, short_help="Delete a queue's waiting jobs; a dry run unless --yes.")
@click.argument("queue", type=QUEUE)
@click.option("-n", "--max", "most", type=click.IntRange(min=1), help="At most this many.")
@click.option("-y", "--yes", is_flag=True, help="Do it. Without this nothing is changed.")
@pass_session
def purge(session: Session, queue: str, most: int | None, yes: bool) -> Exit:
    """Delete the jobs of a queue that wait, as if they had never been enqueued. Without --yes it only counts them."""
    with session.client() as client:
        return change(
            session,
            "purge",
            "deleted",
            lambda steps: client.queues.purge(queue, **steps),
            yes,
            most=most,
        )
