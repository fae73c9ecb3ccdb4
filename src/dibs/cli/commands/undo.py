"""``dibs undo``: take back what was cancelled or brought back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dibs.cli.bulk import change
from dibs.cli.command import Command
from dibs.cli.session import Session, pass_session

if TYPE_CHECKING:
    from dibs.cli.exits import Exit


@click.command(cls=Command)
@click.argument("operation", type=int)
@click.option("-y", "--yes", is_flag=True, help="Do it. Without this nothing is changed.")
@pass_session
def undo(session: Session, operation: int, yes: bool) -> Exit:
    """Undo a cancel or a retry of the last hour; dibs audit shows their numbers.

    A job that ran since stays as it is.
    """
    with session.client() as client:
        return change(session, "undo", "taken back", lambda steps: client.undo(operation, **steps), yes)
