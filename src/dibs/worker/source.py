"""Where a worker's jobs come from: claims on what it may claim from, and the wait for more."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, NamedTuple

from dibs.db import calls
from dibs.errors import DibsError, ShardNotHeld, UnknownWorker
from dibs.events import JobsClaimed, Trouble

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.cluster import Holding
    from dibs.db.database_async import AsyncDatabase
    from dibs.db.listen import AsyncBell
    from dibs.events import Events
    from dibs.job import Claimed


class Mark(NamedTuple):
    """What we knew before a claim: the queues, and how often their bell had rung."""

    queues: list[str]
    heard: int


class Source:
    """Claims jobs, and waits for them when there are none."""

    def __init__(self, database: AsyncDatabase, holding: Holding, bell: AsyncBell, events: Events, poll: float) -> None:
        self._database = database
        self._holding = holding
        self._bell = bell
        self._events = events
        self._poll = poll
        self._claimed_at = time.monotonic()

    @property
    def silence(self) -> float:
        """Seconds since a claim last succeeded."""
        return time.monotonic() - self._claimed_at

    def mark(self) -> Mark:
        """Take note before a claim of what has been heard, so that no ring is missed after it."""
        queues = self._holding.names()
        return Mark(queues, self._bell.heard(queues))

    async def claim(self, asked: Sequence[str], count: int) -> list[Claimed] | None:
        """Up to ``count`` jobs of these queues; None when they could not be asked for."""
        queues = self._holding.of(asked)
        if not queues:
            return []
        began = time.monotonic()
        try:
            jobs = await self._database.run(calls.jobs.claim(queues, count, self._holding.secret, None))
        except (ShardNotHeld, UnknownWorker):
            await self._holding.hold()
            return None
        except DibsError as error:
            self._events.tell(Trouble("claiming", error))
            await asyncio.sleep(self._poll)
            return None
        self._claimed_at = time.monotonic()
        if self._events.wants(JobsClaimed):
            self._events.tell(JobsClaimed(tuple(queues), len(jobs), self._claimed_at - began))
        return jobs

    async def due_in(self, mark: Mark, room: int) -> float:
        """In how many seconds to look again: at the next poll, or earlier when a job is due before that.

        With room left, bring back jobs that others claimed and do not know; they are due at once.
        """
        if (secret := self._holding.secret) is None:
            return self._poll
        with contextlib.suppress(DibsError):
            due, back = await self._database.run(calls.jobs.wait_or_unpark(mark.queues, secret, room))
            if back:
                return 0.0
            return self._poll if due is None else max(0.0, min(self._poll, due))
        return self._poll

    async def unpark(self, room: int) -> bool:
        """Bring back jobs that others claimed and do not know, up to so many; whether any came."""
        with contextlib.suppress(DibsError):
            if (secret := self._holding.secret) is not None:
                return await self._database.run(calls.jobs.unpark(secret, room)) > 0
        return False

    async def listen(self) -> None:
        """Begin to hear the bell."""
        await self._bell.start(1.0)

    async def wait(self, mark: Mark, seconds: float) -> bool:
        """Wait for a ring since the mark; False if none came in time."""
        return await self._bell.wait(mark.queues, mark.heard, seconds)

    def wake(self) -> None:
        """End a wait."""
        self._bell.ring()
