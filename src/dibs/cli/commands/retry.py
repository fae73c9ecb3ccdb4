"""``dibs retry``: bring dead jobs back, due now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dibs.cli.bulk import bulk_options, change, chosen
from dibs.cli.command import Command
from dibs.cli.filters import filter_options
from dibs.cli.session import Session, pass_session
from dibs.cli.types import RATE

if TYPE_CHECKING:
    from dibs.cli.exits import Exit


@click.command(cls=Command, short_help="Bring dead jobs back, due now; a dry run unless --yes.")
@filter_options
@click.option("--rate", type=RATE, help="Spread them: how many become due, such as 50/m or 2/s.")
@bulk_options
@pass_session
def retry(session: Session, /, rate: float | None, most: int | None, yes: bool, **given: Any) -> Exit:
    """Bring dead jobs back, due now; their attempts and TTL start over.

    A filter leaves cancelled jobs alone, unless it names them or their state. Without --yes it only counts them.
    """
    with session.client() as client:
        filter = chosen(session, client, given)
        return change(
            session,
            "retry",
            "brought back",
            lambda steps: client.retry(filter, rate=rate, **steps),
            yes,
            most=most,
            named="ids" in filter,
        )
