"""Claims jobs for a worker, and waits until there may be more."""

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


class RingsBefore(NamedTuple):
    """How often the bell of these queues had rung before a claim."""

    queues: list[str]
    rings: int


class Source:
    """Claims jobs, and waits for a ring or the next poll when there are none."""

    def __init__(self, database: AsyncDatabase, holding: Holding, bell: AsyncBell, events: Events, poll: float) -> None:
        self._database = database
        self._holding = holding
        self._bell = bell
        self._events = events
        self._poll = poll
        self._claimed_at = time.monotonic()

    @property
    def since_claim(self) -> float:
        """Seconds since a claim last succeeded, or there was no queue to claim from."""
        return time.monotonic() - self._claimed_at

    def rings_before(self) -> RingsBefore:
        """Count the rings before a claim, so that :meth:`wait` misses none that came during it."""
        queues = self._holding.names()
        return RingsBefore(queues, self._bell.rings_of(queues))

    async def claim(self, names: Sequence[str], count: int) -> list[Claimed] | None:
        """Claim up to ``count`` jobs of these queues; None if the claim failed."""
        queues = self._holding.names_of(names)
        if not queues:  # Another worker holds the exclusive queue, or all shards.
            self._claimed_at = time.monotonic()
            return []
        began = time.monotonic()
        try:
            jobs = await self._database.run(calls.jobs.claim(queues, count, self._holding.secret, None))
        except (ShardNotHeld, UnknownWorker):
            await self._hold_again()
            return None
        except DibsError as error:
            await self._note_failure(error)
            return None
        self._claimed_at = time.monotonic()
        if self._events.wants(JobsClaimed):
            self._events.tell(JobsClaimed(tuple(queues), len(jobs), self._claimed_at - began))
        return jobs

    async def _hold_again(self) -> None:
        """Register and take shards again, since the database no longer knows of ours."""
        try:
            await self._holding.hold()
        except DibsError as error:
            await self._note_failure(error)

    async def _note_failure(self, error: DibsError) -> None:
        self._events.tell(Trouble("claiming", error))
        await asyncio.sleep(self._poll)

    async def unpark_or_due_in(self, queues: list[str], room: int) -> float:
        """Return in how many seconds to claim again: at the next poll, or earlier if a job is due before that.

        First bring back up to ``room`` parked jobs of our kinds. If there were any, claim again at once.
        """
        if (secret := self._holding.secret) is None:
            return self._poll
        with contextlib.suppress(DibsError):
            due, unparked = await self._database.run(calls.jobs.wait_or_unpark(queues, secret, room))
            if unparked:
                return 0.0
            return self._poll if due is None else max(0.0, min(self._poll, due))
        return self._poll

    async def unpark(self, room: int) -> int | None:
        """Bring back up to ``room`` parked jobs of our kinds. Return how many; None if that failed."""
        if (secret := self._holding.secret) is None:
            return 0
        try:
            return await self._database.run(calls.jobs.unpark(secret, room))
        except DibsError as error:
            await self._note_failure(error)
            return None

    async def listen(self) -> None:
        """Begin to hear the bell."""
        await self._bell.start(1.0)

    async def wait(self, before: RingsBefore, seconds: float) -> bool:
        """Wait for a ring that came after ``before``. Return false if none came in time."""
        return await self._bell.wait(before.queues, before.rings, seconds)

    def wake(self) -> None:
        """End a wait."""
        self._bell.ring()
