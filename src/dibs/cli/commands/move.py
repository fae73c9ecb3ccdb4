"""``dibs move``: put jobs into another queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dibs.cli.bulk import bulk_options, change_chosen
from dibs.cli.command import Command
from dibs.cli.filters import filter_options
from dibs.cli.session import Session, pass_session
from dibs.cli.types import QUEUE

if TYPE_CHECKING:
    from dibs.cli.exits import Exit


@click.command(cls=Command)
@filter_options
@click.option("--to", type=QUEUE, required=True, help="The queue they go to.")
@bulk_options
@pass_session
def move(session: Session, /, to: str, most: int | None, yes: bool, **given: Any) -> Exit:
    """Put jobs that wait or are dead into another queue. Without --yes it only counts them."""
    return change_chosen(
        session,
        "move",
        "moved",
        lambda client, chosen, steps: client.move(chosen, to, **steps),
        given,
        most=most,
        yes=yes,
    )
