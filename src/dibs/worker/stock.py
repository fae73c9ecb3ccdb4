"""Jobs that are claimed and have not begun, and the runners that wait for one."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.job import Claimed


class Stock:
    """Hands jobs to runners, first come, first served."""

    def __init__(self) -> None:
        self._jobs: deque[Claimed] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._waking = False

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def add(self, jobs: Sequence[Claimed]) -> None:
        """Put jobs at the end."""
        self._jobs.extend(jobs)
        self._wake()

    def remove(self, job: Claimed) -> None:
        """Take out this job."""
        self._jobs.remove(job)

    def empty(self) -> list[Claimed]:
        """Take out all of them."""
        jobs = list(self._jobs)
        self._jobs.clear()
        return jobs

    def take(self) -> Claimed:
        """Take the first one, and let another runner take the next."""
        job = self._jobs.popleft()
        if self._jobs:
            self._wake()
        return job

    async def wait(self) -> None:
        """Wait to be woken; there may be nothing to take even then."""
        future = asyncio.get_running_loop().create_future()
        self._idle.append(future)
        await future
        self._waking = False

    def _wake(self) -> None:
        """Wake an idle runner, unless one is waking up: that one wakes the next if it is needed.

        So one runner alone runs handlers that never wait, and the others are not woken in vain.
        """
        while self._idle and not self._waking:
            future = self._idle.popleft()
            if not future.done():
                future.set_result(None)
                self._waking = True
