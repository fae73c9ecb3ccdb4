"""The jobs in hand: how many there are, whose they are, and how fast they end."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.job import Claimed
    from dibs.worker.run_end import RunEnd
    from dibs.worker.shares import Shares

WINDOW = 0.1
"""Over how many seconds the pace is measured; over fewer at first, after a pause."""


class Hand:
    """Counts jobs from the claim until the database knows how they ended."""

    def __init__(self, shares: Shares) -> None:
        self.shares = shares
        self.pace = Pace()
        self.count = 0
        self._changed = asyncio.Event()

    def take(self, jobs: Sequence[Claimed]) -> None:
        """Count jobs that were claimed."""
        self.count += len(jobs)
        self.shares.took(jobs)

    def settle(self, ends: Sequence[RunEnd]) -> None:
        """Count jobs that have ended."""
        self.count -= len(ends)
        self.shares.let_go(ends)
        self.pace.add(len(ends), max(end.ran for end in ends))
        self._changed.set()

    def wake(self) -> None:
        """Let :meth:`change` return though nothing has changed."""
        self._changed.set()

    async def change(self) -> None:
        """Wait until jobs have ended."""
        self._changed.clear()
        await self._changed.wait()


class Pace:
    """How many jobs per second end here."""

    def __init__(self) -> None:
        self.ended = 0
        self.restart()

    def restart(self) -> None:
        """Forget the pace after a pause: the jobs to come may take longer, so none is claimed ahead until we know."""
        self.rate = 0.0
        self._mark = (time.monotonic(), self.ended)
        self._window = WINDOW / 20

    def add(self, count: int, longest: float) -> None:
        """Count jobs that have ended; a measurement lasts at least as long as the longest of them ran."""
        self.ended += count
        since, then = self._mark
        passed = time.monotonic() - since
        if passed >= max(self._window, longest):
            self.rate = 0.5 * self.rate + 0.5 * (self.ended - then) / passed
            self._mark = (time.monotonic(), self.ended)
            self._window = min(2 * self._window, WINDOW)
