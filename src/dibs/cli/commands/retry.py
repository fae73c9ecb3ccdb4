"""``dibs retry``: bring dead jobs back."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.bulk import bulk_options, change_chosen
from dibs.cli.command import Command
from dibs.cli.filters import filter_options
from dibs.cli.session import Session, pass_session
from dibs.cli.types import DURATION, RATE

if TYPE_CHECKING:
    from dibs.cli.exits import Exit


@click.command(cls=Command)
@filter_options
@click.option("--rate", type=RATE, help="Spread them: how many become due, such as 50/m or 2/s.")
@click.option("--delay", type=DURATION, default=timedelta(), help="The first is due this much later.")
@click.option("--now", is_flag=True, help="Also those that are due later: without this they keep their time.")
@bulk_options
@pass_session
def retry(
    session: Session, /, rate: float | None, delay: timedelta, now: bool, most: int | None, yes: bool, **given: Any
) -> Exit:
    """Bring dead jobs back, by id or by filter; their attempts and TTL start over.

    A filter leaves cancelled jobs alone, unless it names them or their state. A due time that is still ahead stays,
    unless --now. Without --yes it only counts them. Exits with 1 if jobs were named and none came back.
    """
    return change_chosen(
        session,
        "retry",
        "brought back",
        lambda client, chosen, steps: client.retry(chosen, rate=rate, delay=delay, now=now, **steps),
        given,
        most=most,
        yes=yes,
    )
