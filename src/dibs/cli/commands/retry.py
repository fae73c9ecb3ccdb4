"""``dibs retry``: bring dead jobs back, due now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dibs.cli.bulk import bulk_options, change, chosen
from dibs.cli.command import Command
from dibs.cli.filters import filter_options
from dibs.cli.session import Session, pass_session

if TYPE_CHECKING:
    from dibs.cli.exits import Exit


@click.command(cls=Command, short_help="Bring dead jobs back, due now; a dry run unless --yes.")
@filter_options
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="How many become due per second.")
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
            lambda tell, dry: client.retry(filter, rate=rate, max=most, dry_run=dry, on_step=tell),
            yes,
            named="ids" in filter,
        )
