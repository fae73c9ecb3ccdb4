"""Gathers the jobs of batch handlers: until there are enough, or the first has waited long enough."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dibs.client.task import Task
    from dibs.job import Claimed


class Batches:
    """The batches that are open, one for each kind."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[list[Claimed], asyncio.Event]] = {}

    def join(self, task: Task[Any, Any], job: Claimed) -> bool:
        """Add a job to the batch that is open for its kind, if one is."""
        found = self._open.get(task.name)
        if found is None:
            return False
        jobs, full = found
        jobs.append(job)
        if task.settings.batch is None or len(jobs) >= task.settings.batch.max:
            del self._open[task.name]
            full.set()
        return True

    async def gather(self, task: Task[Any, Any], jobs: list[Claimed]) -> None:
        """Open a batch with these jobs, and wait until it is closed: others have joined it then."""
        batch = task.settings.batch
        if batch is None or len(jobs) >= batch.max:
            return
        opened = (jobs, asyncio.Event())
        self._open[task.name] = opened
        try:
            async with asyncio.timeout(batch.within):
                await opened[1].wait()
        except TimeoutError:
            return
        finally:
            if self._open.get(task.name) is opened:
                del self._open[task.name]
