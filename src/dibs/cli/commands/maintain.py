"""``dibs maintain``: the upkeep, in the foreground."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Command
from dibs.cli.exits import Exit
from dibs.cli.output import first_line, shown
from dibs.cli.prune import prune
from dibs.cli.session import PATIENCE, Session, pass_session
from dibs.db.database_async import AsyncDatabase
from dibs.errors import ConnectionLost
from dibs.events import Events, OutageBegan, OutageEnded
from dibs.maintenance import ChoreDone, ChoreFailed
from dibs.maintenance import maintain as run_maintenance
from dibs.maintenance import once as run_once
from dibs.metrics.lines import line_of
from dibs.runtime.guard import Guard
from dibs.runtime.signals import obeying
from dibs.worker.pulse import Pulse, watched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.cli.output import Output
    from dibs.errors import DibsError

STYLES = {"trouble": "red", "waiting": "yellow", "recovered": "green"}


@click.command(cls=Command)
@click.option("--once", is_flag=True, help="Do everything once and exit.")
@click.option("--prune-only", is_flag=True, help="Only drop what is past its retention, until none is left, and exit.")
@pass_session
def maintain(session: Session, once: bool, prune_only: bool) -> Exit:
    """Rescue, expire, make and drop days, forget: until SIGTERM or Ctrl-C.

    Run it anywhere; several at once are harmless. --prune-only is for when the upkeep is behind, or nobody does it.
    """
    if prune_only:
        return prune(session)
    dsn = session.find()
    if once:
        done = asyncio.run(_once(dsn))
        Log(session.output).table(done)
        return Exit.FAILED if any(isinstance(d, ChoreFailed) for d in done) else Exit.OK
    asyncio.run(_until_stopped(dsn, Log(session.output)))
    return Exit.OK


async def _once(dsn: str) -> list[ChoreDone | ChoreFailed]:
    database = AsyncDatabase(dsn, pool_size=1, patience=PATIENCE)
    try:
        await database.open()
        return await run_once(database)
    finally:
        await database.close()


async def _until_stopped(dsn: str, log: Log) -> None:
    stop = asyncio.Event()
    database = AsyncDatabase(dsn, pool_size=3, patience=PATIENCE)
    with obeying(stop.set, guard=Guard()):
        try:
            # Wait for a database that is away. If it has no schema dibs, fail at once.
            try:
                await database.open()
            except ConnectionLost as error:
                log.away(error)
            log.started()
            async with watched(dsn, Pulse(log.outages())):
                await run_maintenance(database, until=stop, listener=log)
        finally:
            await database.close()
        log.stopped()


class Log:
    """Writes a line for each fact; rounds that found nothing to do are silent."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._failing: set[str] = set()

    def __call__(self, fact: ChoreDone | ChoreFailed) -> None:
        """Write a fact, unless a round found nothing."""
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

    def outages(self) -> Events:
        """Return the listener of outages of the database."""
        events = Events()
        events.on(OutageBegan, lambda event: self._line("trouble", error=line_of(event).text))
        events.on(OutageEnded, lambda event: self._line("recovered", after=round(event.after, 1)))
        return events

    def started(self) -> None:
        """Write that the loops are about to run."""
        self._line("started")

    def stopped(self) -> None:
        """Write that all loops have ended."""
        self._line("stopped")

    def away(self, error: DibsError) -> None:
        """Write that the database is not there yet."""
        self._line("waiting", error=first_line(str(error)))

    def table(self, done: Sequence[ChoreDone | ChoreFailed]) -> None:
        """Report one round of all chores."""
        if self._output.as_json:
            self._output.json({d.chore: _as_json(d) for d in done})
        else:
            self._output.facts((d.chore, _in_words(d)) for d in done)

    def _line(self, event: str, **facts: Any) -> None:
        now = datetime.now(UTC)
        if self._output.as_json:
            self._output.json({"at": now, "event": event, **facts})
            return
        fields = " ".join(f"{name}={value}" for name, value in facts.items())
        self._output.say(f"{shown(now)} {event:9} {fields}".rstrip(), STYLES.get(event, ""))


def _as_json(done: ChoreDone | ChoreFailed) -> dict[str, Any]:
    if isinstance(done, ChoreFailed):
        return {"failed": str(done.error)}
    return {"skipped": "another process is doing it"} if done.outcome == "busy" else dict(done.counts)


def _in_words(done: ChoreDone | ChoreFailed) -> str:
    if isinstance(done, ChoreFailed):
        return f"failed: {first_line(str(done.error))}"
    if done.outcome == "busy":
        return "skipped: another process is doing it"
    return ", ".join(f"{n} {what}" for what, n in done.counts.items() if n) or "nothing to do"
