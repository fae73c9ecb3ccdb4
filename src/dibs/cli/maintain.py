"""``dibs maintain``: the upkeep, in the foreground."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import click

from dibs.cli.command import Command
from dibs.cli.maintaining import Log
from dibs.cli.session import PATIENCE, Session, pass_session
from dibs.db.database_async import AsyncDatabase
from dibs.errors import ConnectionLost
from dibs.maintenance import maintain as run_maintenance
from dibs.maintenance import once as run_once

if TYPE_CHECKING:
    from dibs.maintenance import Done

STOPS = (signal.SIGTERM, signal.SIGINT)


@click.command(cls=Command, short_help="Do the upkeep, until stopped or once.")
@click.option("--once", is_flag=True, help="Do everything once and exit.")
@pass_session
def maintain(session: Session, once: bool) -> None:
    """Rescue, expire, make and drop days, forget: for ever, until SIGTERM or Ctrl-C.

    Run it anywhere, as often as you like: two at once do no harm.
    """
    dsn = session.find()
    if once:
        Log(session.output).table(asyncio.run(_once(dsn)))
    else:
        asyncio.run(_for_ever(dsn, Log(session.output)))


async def _once(dsn: str) -> list[Done]:
    database = AsyncDatabase(dsn, pool_size=1, patience=PATIENCE)
    try:
        await database.open()
        return await run_once(database)
    finally:
        await database.close()


async def _for_ever(dsn: str, log: Log) -> None:
    stop = asyncio.Event()
    for number in STOPS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    database = AsyncDatabase(dsn, pool_size=3, patience=PATIENCE)
    try:
        # A database that is away will come back; one without our schema will not grow it by waiting.
        try:
            await database.open()
        except ConnectionLost as error:
            log.away(error)
        log.started()
        await run_maintenance(database, until=stop, report=log)
    finally:
        await database.close()
    log.stopped()
