"""``dibs maintain``: the upkeep, in the foreground."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Command
from dibs.cli.output import first_line
from dibs.cli.session import PATIENCE, Session, pass_session
from dibs.db.database_async import AsyncDatabase
from dibs.errors import ConnectionLost
from dibs.maintenance import ChoreDone, ChoreFailed
from dibs.maintenance import maintain as run_maintenance
from dibs.maintenance import once as run_once
from dibs.runtime.signals import obeying

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.cli.output import Output
    from dibs.errors import DibsError

STYLES = {"trouble": "red", "waiting": "yellow", "recovered": "green"}


@click.command(cls=Command, short_help="Do the upkeep, until stopped or once.")
@click.option("--once", is_flag=True, help="Do everything once and exit.")
@pass_session
def maintain(session: Session, once: bool) -> None:
    """Rescue, expire, make and drop days, forget: until SIGTERM or Ctrl-C.

    Run it anywhere; several at once are harmless.
    """
    dsn = session.find()
    if once:
        Log(session.output).table(asyncio.run(_once(dsn)))
    else:
        asyncio.run(_until_stopped(dsn, Log(session.output)))


async def _once(dsn: str) -> list[ChoreDone]:
    database = AsyncDatabase(dsn, pool_size=1, patience=PATIENCE)
    try:
        await database.open()
        return await run_once(database)
    finally:
        await database.close()


async def _until_stopped(dsn: str, log: Log) -> None:
    stop = asyncio.Event()
    database = AsyncDatabase(dsn, pool_size=3, patience=PATIENCE)
    with obeying(stop.set):
        try:
            # A database that is away will come back; one without our schema will not grow it by waiting.
            try:
                await database.open()
            except ConnectionLost as error:
                log.away(error)
            log.started()
            await run_maintenance(database, until=stop, listener=log)
        finally:
            await database.close()
        log.stopped()


class Log:
    """One line for each fact; rounds that found nothing to do are not news."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._failing: set[str] = set()

    def __call__(self, fact: ChoreDone | ChoreFailed) -> None:
        """Write what happened, if it is news."""
        if isinstance(fact, ChoreFailed):
            self._failing.add(fact.chore)
            self._line("trouble", chore=fact.chore, error=first_line(str(fact.error)), failures=fact.failures,
                       again_in=round(fact.again, 1))  # fmt: skip
            return
        if fact.chore in self._failing:
            self._failing.discard(fact.chore)
            self._line("recovered", chore=fact.chore)
        if fact.anything:
            self._line("done", chore=fact.chore, **{k: v for k, v in fact.counts.items() if v})

    def started(self) -> None:
        """The loops are about to run."""
        self._line("started")

    def stopped(self) -> None:
        """All loops have ended."""
        self._line("stopped")

    def away(self, error: DibsError) -> None:
        """The database is not there yet."""
        self._line("waiting", error=first_line(str(error)))

    def table(self, done: Sequence[ChoreDone]) -> None:
        """What one round of everything did."""
        if self._output.as_json:
            self._output.json({d.chore: d.counts for d in done})
            return
        told = ((d.chore, ", ".join(f"{n} {what}" for what, n in d.counts.items() if n)) for d in done)
        self._output.facts((chore, text or "nothing to do") for chore, text in told)

    def _line(self, event: str, **facts: Any) -> None:
        now = datetime.now(UTC)
        if self._output.as_json:
            self._output.json({"at": now, "event": event, **facts})
            return
        told = " ".join(f"{name}={value}" for name, value in facts.items())
        self._output.say(f"{now.astimezone():%Y-%m-%d %H:%M:%S} {event:9} {told}".rstrip(), STYLES.get(event, ""))
