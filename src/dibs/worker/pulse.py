"""Notices within two seconds that the database does not answer.

Calls are repeated with patience and leases last for a while, so an outage could go unnoticed for long. Therefore a
small call is made a few times per second, and one without an answer is an outage.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

from dibs.db import calls
from dibs.db.database_async import AsyncDatabase
from dibs.errors import ConnectionLost, DibsError
from dibs.events import OutageBegan, OutageEnded
from dibs.runtime import end, wait_at_most

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from dibs.events import Events

CALL_EVERY = 0.4
"""Make a small call when none was made for this many seconds."""
OUTAGE_AFTER = 1.0
"""An answer that takes longer than this many seconds is an outage. With CALL_EVERY, and the pauses between two looks,
it is noticed in less than 2 s."""
CLOSING = 1.0
"""Seconds to disconnect."""


class Pulse:
    """Knows since when a call has no answer, and reports when an outage begins and ends.

    One thread makes calls, another looks for an outage. They share attributes without a lock: each is set in one step.
    If two threads meet, an outage may be reported late or once too often, until the next answer.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self._called_at = time.monotonic()
        self._unanswered_since: float | None = None
        self._error: ConnectionLost | None = None
        self._is_outage_reported = False

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Wrap a call in this. A call that fails has had an answer, too, unless it fails with ConnectionLost."""
        self._called_at = time.monotonic()
        if self._unanswered_since is None:
            self._unanswered_since = self._called_at
        try:
            yield
        except ConnectionLost as error:
            self._error = self._error or error
            raise
        except Exception:
            self._answered()
            raise
        self._answered()

    def _answered(self) -> None:
        since = self._unanswered_since
        self._unanswered_since = self._error = None
        if self._is_outage_reported:
            self._is_outage_reported = False
            self._events.tell(OutageEnded(0.0 if since is None else time.monotonic() - since))

    @property
    def is_due(self) -> bool:
        """True if it is time to make a small call."""
        return time.monotonic() - self._called_at >= CALL_EVERY

    @property
    def silence(self) -> float:
        """The seconds that a call has been without an answer, if they are too many; otherwise 0."""
        since = self._unanswered_since
        silence = 0.0 if since is None else time.monotonic() - since
        return silence if silence > OUTAGE_AFTER else 0.0

    def report_outage(self) -> None:
        """Report an outage if one has begun."""
        if not self._is_outage_reported and (silence := self.silence):
            self._is_outage_reported = True
            self._events.tell(OutageBegan(silence, self._error))

    def trouble(self) -> str | None:
        """Describe the outage, if there is one."""
        silence = self.silence
        return f"the database has not answered for {silence:.0f} s" if silence else None


@asynccontextmanager
async def watched(dsn: str, pulse: Pulse) -> AsyncIterator[None]:
    """Report outages while the block lasts, over a separate connection. Nothing may block the event loop."""
    database = AsyncDatabase(dsn, pool_size=1)
    task = asyncio.create_task(_watch(database, pulse), name="pulse")
    try:
        yield
    finally:
        await end([task], within=CLOSING)
        await wait_at_most(database.close(), CLOSING)


async def _watch(database: AsyncDatabase, pulse: Pulse) -> None:
    while True:
        call = asyncio.create_task(_probe(database, pulse))
        try:
            while not call.done():
                await asyncio.wait({call}, timeout=CALL_EVERY)
                pulse.report_outage()
        finally:
            await end([call], within=CLOSING)
        await asyncio.sleep(CALL_EVERY)


async def _probe(database: AsyncDatabase, pulse: Pulse) -> None:
    with suppress(DibsError), pulse.calling():
        await database.run(calls.schema.now(), patience=0)
