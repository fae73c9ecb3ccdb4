"""Whether the database answers.

Calls are repeated with patience and leases last for a while, so an outage could go unnoticed for long. Something small
is asked a few times per second instead, and an answer that does not come is an outage.
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
from dibs.runtime import end, limited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from dibs.events import Events

EVERY = 0.4
"""Ask when nothing was asked for this many seconds."""
SILENCE = 1.0
"""An answer that takes longer than this many seconds is an outage. With EVERY, and the naps between two looks, it is
noticed in less than 2 s."""
CLOSING = 1.0
"""How many seconds there are to take leave of the database."""


class Pulse:
    """Knows since when a question is open, and tells when an outage begins and ends.

    One thread asks, others look. What they share is set in one step each, and a race is made up for by the next answer.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self._asked_at = time.monotonic()
        self._open_since: float | None = None
        self._error: ConnectionLost | None = None
        self._is_out = False

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Around a call: whatever it raises is an answer, unless the connection was lost."""
        self._asked_at = time.monotonic()
        if self._open_since is None:
            self._open_since = self._asked_at
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
        since, self._open_since, self._error = self._open_since, None, None
        if self._is_out:
            self._is_out = False
            self._events.tell(OutageEnded(0.0 if since is None else time.monotonic() - since))

    @property
    def is_due(self) -> bool:
        """Whether it is time to ask."""
        return time.monotonic() - self._asked_at >= EVERY

    @property
    def silence(self) -> float:
        """For how many seconds a question has been open, if that is too long; otherwise 0."""
        since = self._open_since
        silence = 0.0 if since is None else time.monotonic() - since
        return silence if silence > SILENCE else 0.0

    def look(self) -> None:
        """Tell if an outage has begun."""
        if not self._is_out and (silence := self.silence):
            self._is_out = True
            self._events.tell(OutageBegan(silence, self._error))

    def trouble(self) -> str | None:
        """What to say of an outage, if there is one."""
        silence = self.silence
        return f"the database has not answered for {silence:.0f} s" if silence else None


@asynccontextmanager
async def watched(dsn: str, pulse: Pulse) -> AsyncIterator[None]:
    """Ask and look while the block lasts, on an event loop that nothing blocks, over a separate connection."""
    database = AsyncDatabase(dsn, pool_size=1)
    task = asyncio.create_task(_watch(database, pulse), name="pulse")
    try:
        yield
    finally:
        await end([task], within=CLOSING)
        await limited(database.close(), CLOSING)


async def _watch(database: AsyncDatabase, pulse: Pulse) -> None:
    while True:
        asked = asyncio.create_task(_ask(database, pulse))
        try:
            while not asked.done():
                await asyncio.wait({asked}, timeout=EVERY)
                pulse.look()
        finally:
            await end([asked], within=CLOSING)
        await asyncio.sleep(EVERY)


async def _ask(database: AsyncDatabase, pulse: Pulse) -> None:
    with suppress(DibsError), pulse.asking():
        await database.run(calls.schema.now(), patience=0)
