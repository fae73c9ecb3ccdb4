"""The client's verbs for operators: on many jobs at once, on queues, and what the audit says."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from typing import TYPE_CHECKING, TypeVar, Unpack

from dibs.client.schedules_async import AsyncScheduling
from dibs.db import calls
from dibs.operation import Changed, Exported
from dibs.policy import seconds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from datetime import datetime
    from uuid import UUID

    from dibs.db.calls import Call
    from dibs.db.calls.operate import Place
    from dibs.operation import Audit, ErrorGroup, Found, JobFilter, Step, Steps
    from dibs.policy import JobChanges, Seconds
    from dibs.states import Answer

R = TypeVar("R")

STEP, LOOK = 1000, 10_000
"""How many jobs one step changes at most, and how many one counts that changes nothing."""


class AsyncOperating(AsyncScheduling):
    """What a client can do for those who run the queues.

    A verb on many jobs is done in :class:`Steps`: what is interrupted has done a part, and can be called again.
    """

    @abstractmethod
    async def _run(self, call: Call[R]) -> R: ...

    async def delete(self, filter: JobFilter, **steps: Unpack[Steps]) -> Changed:
        """Delete jobs that have succeeded or are dead, with their attempts."""
        return await self._in_steps(lambda place, _: calls.operate.delete(filter, place), **steps)

    async def purge(self, queue: str, **steps: Unpack[Steps]) -> Changed:
        """Delete the jobs of a queue that wait, as if they had never been enqueued."""
        return await self._in_steps(lambda place, _: calls.operate.purge(queue, place), **steps)

    async def move(self, filter: JobFilter, to: str, **steps: Unpack[Steps]) -> Changed:
        """Put jobs that wait or are dead into the queue ``to``."""
        return await self._in_steps(lambda place, _: calls.operate.move(filter, to, place), **steps)

    async def retry(
        self, filter: JobFilter, *, rate: float | None = None, delay: Seconds = 0, **steps: Unpack[Steps]
    ) -> Changed:
        """Bring dead jobs back, due now, or ``rate`` of them per second, from ``delay`` on.

        A filter without ``ids`` and ``states`` leaves cancelled jobs alone.
        """

        def ask(place: Place, matched: int) -> Call[Step]:
            return calls.operate.retry(filter, rate, seconds(delay) + (matched / rate if rate else 0.0), place)

        return await self._in_steps(ask, **steps)

    async def cancel_where(
        self, filter: JobFilter, *, reason: str = "cancelled by request", **steps: Unpack[Steps]
    ) -> Changed:
        """Cancel jobs that wait, and ask the holders of those that run to stop."""
        return await self._in_steps(lambda place, _: calls.operate.cancel_where(filter, reason, place), **steps)

    async def undo(self, operation: int, **steps: Unpack[Steps]) -> Changed:
        """Undo a ``cancel_where``, a ``retry`` or a ``redrive`` of the last hour, where nothing ran since."""
        return await self._in_steps(lambda place, _: calls.operate.undo(operation, place), **steps)

    async def count_jobs(self, filter: JobFilter | None = None, **steps: Unpack[Steps]) -> Changed:
        """Count jobs by a filter, newest first; nothing is changed."""
        steps["dry_run"] = True
        return await self._in_steps(lambda place, _: calls.operate.count_jobs(filter or {}, place), **steps)

    async def _in_steps(self, ask: Callable[[Place, int], Call[Step]], **steps: Unpack[Steps]) -> Changed:
        max, within, dry_run = steps.get("max"), steps.get("within"), steps.get("dry_run", False)
        until = math.inf if within is None else time.monotonic() + within
        size = LOOK if dry_run else STEP
        so_far = Changed(0, 0, None, more=True, next=steps.get("after"))
        while so_far.more and (max is None or so_far.matched < max):
            most = size if max is None else min(size, max - so_far.matched)
            step = await self._run(ask((most, so_far.next, so_far.operation, dry_run), so_far.matched))
            matched, done = so_far.matched + step.matched, so_far.done + step.done
            so_far = Changed(matched, done, step.operation, more=step.next is not None, next=step.next)
            if on_step := steps.get("on_step"):
                on_step(so_far)
            if time.monotonic() >= until:
                break
        return so_far

    async def export(
        self, filter: JobFilter | None = None, *, payloads: bool = True, before: UUID | None = None
    ) -> AsyncIterator[Exported]:
        """Every job that a filter chooses, newest first, in parts that fit in memory; raises NotPermitted.

        With ``payloads`` only for those who may see them. A part may have no jobs, and there may still be more.
        """
        place, is_more = before, True
        while is_more:
            page = await self._run(calls.operate.export_page(filter or {}, STEP, place))
            place, is_more = page.next, page.next is not None
            jobs, looked = page.jobs, page.looked
            while payloads and jobs:
                carried = await self._run(calls.operate.payloads([job["id"] for job in jobs]))
                ready, jobs = jobs[: len(carried)], jobs[len(carried) :]
                filled = [{**job, **told} for job, told in zip(ready, carried, strict=True)]
                yield Exported(filled, looked, ready[-1]["id"] if jobs else place)
                looked = 0
            if looked or jobs:
                yield Exported(jobs, looked, place)

    async def clone(self, id: UUID) -> UUID:
        """Enqueue a job once more, due now, with the same payload and options; its id. Raises UnknownJob."""
        return await self._run(calls.operate.clone(id))

    async def edit(self, id: UUID, **changes: Unpack[JobChanges]) -> Answer:
        """Change a job that waits or is dead: ``changed``; raises JobRunning, JobEnded and UnknownJob."""
        return await self._run(calls.operate.edit(id, changes))

    async def drop_queue(self, name: str) -> bool:
        """Take a queue away that has no jobs and no schedule, with its policy; raises QueueInUse and UnknownQueue."""
        return await self._run(calls.operate.drop_queue(name))

    async def find_jobs(self, filter: JobFilter | None = None, *, limit: int = 50, before: UUID | None = None) -> Found:
        """Look for jobs, newest first; ``before`` goes on where a search stopped."""
        return await self._run(calls.operate.find_jobs(filter or {}, limit, before))

    async def audits(self, *, limit: int = 50, before: int | None = None) -> list[Audit]:
        """Who changed what, newest first; ``before`` continues after the operation of that number."""
        return await self._run(calls.operate.audits(limit, before))

    async def error_groups(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        since: datetime | None = None,
        limit: int = 50,
    ) -> list[ErrorGroup]:
        """Failures that are alike, those that happened last first."""
        return await self._run(calls.operate.error_groups(queue, kind, since, limit))
