"""``dibs delete``: delete jobs that have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dibs.cli.bulk import bulk_options, change_chosen
from dibs.cli.command import Command
from dibs.cli.filters import filter_options
from dibs.cli.session import Session, pass_session

if TYPE_CHECKING:
    from dibs.cli.exits import Exit


@click.command(cls=Command)
@filter_options
@bulk_options
@pass_session
def delete(session: Session, /, most: int | None, yes: bool, **given: Any) -> Exit:
    """Delete jobs that have succeeded or are dead, with their attempts. Without --yes it only counts them.

    Jobs that wait are not deleted: cancel them, or empty a queue with dibs queues purge.
    """
    return change_chosen(
        session,
        "delete",
        "deleted",
        lambda client, chosen, steps: client.delete(chosen, **steps),
        given,
        most=most,
        yes=yes,
    )
