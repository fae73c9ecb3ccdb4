"""Collects the jobs of batch handlers until there are enough, or the first has waited long enough."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dibs.client.task import Task
    from dibs.job import Claimed


class Batch:
    """Jobs of one kind for one call of their handler. While it is open, others may join."""

    def __init__(self, first: Claimed) -> None:
        self.jobs = [first]
        self.is_full = asyncio.Event()


class Batches:
    """The open batches, at most one for each kind."""

    def __init__(self) -> None:
        self._open: dict[str, Batch] = {}

    def join(self, task: Task[Any, Any], job: Claimed) -> bool:
        """Add a job to the open batch of its kind. Return false if none is open."""
        batch = self._open.get(task.name)
        if batch is None:
            return False
        batch.jobs.append(job)
        if task.settings.batch is None or len(batch.jobs) >= task.settings.batch.max:
            del self._open[task.name]
            batch.is_full.set()
        return True

    async def fill(self, task: Task[Any, Any], batch: Batch) -> None:
        """Open a batch, and close it when it is full or its first job has waited long enough."""
        settings = task.settings.batch
        if settings is None or len(batch.jobs) >= settings.max:
            return
        self._open[task.name] = batch
        try:
            async with asyncio.timeout(settings.within):
                await batch.is_full.wait()
        except TimeoutError:
            return
        finally:
            if self._open.get(task.name) is batch:
                del self._open[task.name]
