"""The jobs in flight: claimed, and the database does not know yet how they ended."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.job import Claimed
    from dibs.worker.run_end import RunEnd
    from dibs.worker.shares import Shares

FIRST_WINDOW, WINDOW = 0.005, 0.1
"""The least number of seconds that one measurement of the pace takes: at first after a pause, and later."""


class InFlight:
    """Counts the jobs in flight, in total and for each queue, and measures how fast they end."""

    def __init__(self, shares: Shares) -> None:
        self.shares = shares
        self.pace = Pace()
        self.count = 0
        self._changed = asyncio.Event()

    def add(self, jobs: Sequence[Claimed]) -> None:
        """Count jobs that were claimed."""
        self.count += len(jobs)
        self.shares.add(jobs)

    def remove(self, ends: Sequence[RunEnd]) -> None:
        """Count jobs that have ended."""
        self.count -= len(ends)
        self.shares.remove(ends)
        self.pace.add(len(ends), max(end.ran for end in ends))
        self._changed.set()

    def wake(self) -> None:
        """Let :meth:`wait_for_end` return although no job has ended."""
        self._changed.set()

    async def wait_for_end(self) -> None:
        """Wait until a job has ended."""
        self._changed.clear()
        await self._changed.wait()


class Pace:
    """Measures how many jobs end per second."""

    def __init__(self) -> None:
        self.ended = 0
        self.restart()

    def restart(self) -> None:
        """Forget the rate after a pause. A rate of 0 keeps the producer from prefetching: the next jobs may be long."""
        self.rate = 0.0
        self._measured_at = time.monotonic()
        self._measured_ended = self.ended
        self._window = FIRST_WINDOW

    def add(self, count: int, longest: float) -> None:
        """Count jobs that have ended. A measurement takes at least as long as the longest of them ran."""
        self.ended += count
        passed = time.monotonic() - self._measured_at
        if passed >= max(self._window, longest):
            self.rate = 0.5 * self.rate + 0.5 * (self.ended - self._measured_ended) / passed
            self._measured_at = time.monotonic()
            self._measured_ended = self.ended
            self._window = min(2 * self._window, WINDOW)
