"""``dibs top``: a live page in the terminal."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from dibs.cli.command import Command
from dibs.cli.session import Session, pass_session
from dibs.cli.types import DURATION
from dibs.client.bounded import BoundedClient
from dibs.db.dsn import place
from dibs.errors import InvalidArgument
from dibs.policy import seconds

if TYPE_CHECKING:
    from datetime import timedelta


@click.command(cls=Command)
@click.option("--every", type=DURATION, default="2s", show_default=True, help="Time between two updates.")
@pass_session
def top(session: Session, every: timedelta) -> None:
    """Look at queues, running jobs, workers and dead jobs, live, and fix what is wrong.

    Keys: 1 to 4 for the tables, s to sort, / to filter, enter for a job, p to pause a queue, r to retry, c to cancel, q
    to quit.
    """
    if session.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidArgument("dibs top needs a terminal", hint="for programs there are: dibs queues --json, dibs jobs")
    try:
        from dibs.cli.top.page import Page
    except ImportError:
        raise InvalidArgument("dibs top needs an extra", hint="pip install 'dibs[top]'") from None
    asyncio.run(_run(session.find(), seconds(every), Page))


async def _run(dsn: str, every: float, page: type) -> None:
    async with BoundedClient(dsn, timeout=5.0, read_only=False) as client:
        await page(client, place(dsn), every).run_async()
