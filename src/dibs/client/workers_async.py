"""``client.workers``: the processes that run jobs, their tasks, and how many are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.client.noun_async import AsyncNoun
from dibs.db import calls

if TYPE_CHECKING:
    import builtins
    from collections.abc import Sequence
    from uuid import UUID

    from dibs.info import RunningJob, TaskInfo, WorkerInfo, WorkersWanted
    from dibs.policy import Seconds
    from dibs.states import Answer


class AsyncWorkers(AsyncNoun):
    """Workers; reached as ``client.workers``."""

    async def list(self) -> builtins.list[WorkerInfo]:
        """Return every registered process, when it was last seen and how many jobs it holds."""
        return await self._run(calls.workers.workers())

    async def stop(self, number: int) -> Answer:
        """Ask a worker to stop, as SIGTERM would: ``requested``; raises UnknownWorker."""
        return await self._run(calls.workers.stop_worker(number))

    async def tasks(self) -> builtins.list[TaskInfo]:
        """Return every task that a worker has registered: kind, queue, arguments, options."""
        return await self._run(calls.workers.tasks())

    async def wanted(
        self,
        queue: str | None = None,
        *,
        target: Seconds = 300.0,
        slots: int | None = None,
        run_time: Seconds | None = None,
    ) -> builtins.list[WorkersWanted]:
        """Compute how many workers a queue needs, or each queue, to finish its due jobs within ``target`` seconds.

        ``slots`` is how many jobs one worker runs at once, ``run_time`` how long a run takes; by default as
        the live workers report, and as measured.
        """
        return await self._run(calls.queues.workers_wanted(queue, target, slots, run_time))

    async def running(self, *, worker: int | None = None, limit: int = 1000) -> builtins.list[RunningJob]:
        """Return jobs that run now, the longest running first; of one worker, if its number is given."""
        return await self._run(calls.jobs.running(worker, limit))

    async def held(self, ids: Sequence[UUID]) -> builtins.list[RunningJob]:
        """Return the given jobs that run now."""
        return await self._run(calls.jobs.held(ids))
