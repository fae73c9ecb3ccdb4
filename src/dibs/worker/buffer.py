"""Jobs that are claimed and have not begun, and the runners that wait for one."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.job import Claimed


class Buffer:
    """Hands jobs to runners, first come, first served."""

    def __init__(self) -> None:
        self._jobs: deque[Claimed] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_one_waking = False

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def add(self, jobs: Sequence[Claimed]) -> None:
        """Put jobs at the end."""
        self._jobs.extend(jobs)
        self._wake_one()

    def remove(self, job: Claimed) -> None:
        """Remove this job."""
        self._jobs.remove(job)

    def empty(self) -> list[Claimed]:
        """Remove all jobs and return them."""
        jobs = list(self._jobs)
        self._jobs.clear()
        return jobs

    def take(self) -> Claimed:
        """Take the first job, and let another runner take the next."""
        job = self._jobs.popleft()
        if self._jobs:
            self._wake_one()
        return job

    async def wait(self) -> None:
        """Wait to be woken. Another runner may have taken the job by then."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():  # Woken and cancelled at once: wake another in our place.
                self._is_one_waking = False
                if self._jobs:
                    self._wake_one()
            raise
        self._is_one_waking = False

    def _wake_one(self) -> None:
        """Wake the runner that has waited longest, unless another is waking up at the moment.

        That one takes a job, and then wakes the next runner if jobs are left. So a single runner runs all handlers that
        never wait, and the others are not woken in vain.
        """
        if self._is_one_waking:
            return
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                self._is_one_waking = True
                return
