"""The client's verbs for operators: on many jobs at once, on single jobs, and the audit."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeVar, Unpack

from dibs.client.steps_async import STEP, in_steps
from dibs.db import calls
from dibs.operation import Exported, Found
from dibs.policy import seconds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from dibs.db.calls import Call
    from dibs.operation import Audit, Changed, JobFilter, Step, StepArgs, Steps
    from dibs.policy import JobChanges, Seconds
    from dibs.states import Answer

R = TypeVar("R")

PAGE = 10_000
"""The most jobs that one step of a search returns."""


class AsyncOperating(ABC):
    """The client's verbs on many jobs, and on jobs that wait or have ended.

    A verb on many jobs is done in steps, bounded by the options in :class:`Steps`. An interrupted call has changed
    some jobs; call it again to finish.
    """

    @abstractmethod
    async def _run(self, call: Call[R]) -> R: ...

    async def delete(self, filter: JobFilter, **steps: Unpack[Steps]) -> Changed:
        """Delete jobs that have succeeded or are dead, with their attempts."""
        return await in_steps(self._run, lambda args, _: calls.operate.delete(filter, args), **steps)

    async def move(self, filter: JobFilter, to: str, **steps: Unpack[Steps]) -> Changed:
        """Put jobs that wait or are dead into the queue ``to``."""
        return await in_steps(self._run, lambda args, _: calls.operate.move(filter, to, args), **steps)

    async def retry(
        self,
        filter: JobFilter,
        *,
        rate: float | None = None,
        delay: Seconds = 0,
        now: bool = False,
        **steps: Unpack[Steps],
    ) -> Changed:
        """Bring dead jobs back with new attempts and a new TTL: all at once, or up to ``rate`` per second.

        The first are due after ``delay``. A filter without ``ids`` and ``states`` leaves cancelled jobs alone. A due
        time that is still ahead stays, unless ``now``. Jobs that stay dead are in ``refused`` of the answer.
        """

        def ask(args: StepArgs, matched_before: int) -> Call[Step]:
            # The first step sends `rate` as it is: SQL refuses one that makes no sense, such as NaN.
            wait = seconds(delay) + (matched_before / rate if rate and matched_before else 0.0)
            return calls.operate.retry(filter, rate, wait, now, args)

        return await in_steps(self._run, ask, **steps)

    async def cancel_where(
        self, filter: JobFilter, *, reason: str = "cancelled by request", **steps: Unpack[Steps]
    ) -> Changed:
        """Cancel jobs that wait, and ask the holders of those that run to stop."""
        return await in_steps(self._run, lambda args, _: calls.operate.cancel_where(filter, reason, args), **steps)

    async def undo(self, operation: int, **steps: Unpack[Steps]) -> Changed:
        """Undo a ``cancel_where`` or a ``retry`` of the last hour, where nothing ran since."""
        return await in_steps(self._run, lambda args, _: calls.operate.undo(operation, args), **steps)

    async def count_jobs(self, filter: JobFilter | None = None, **steps: Unpack[Steps]) -> Changed:
        """Count jobs by a filter, newest first; nothing is changed."""
        steps["dry_run"] = True
        return await in_steps(self._run, lambda args, _: calls.operate.count_jobs(filter or {}, args), **steps)

    async def export(
        self, filter: JobFilter | None = None, *, payloads: bool = True, before: UUID | None = None
    ) -> AsyncIterator[Exported]:
        """Yield all jobs that a filter chooses, newest first, in parts that fit in memory; raises NotPermitted.

        ``payloads`` needs the right to see payloads. A part may have no jobs although there are more.
        """
        cursor, is_more = before, True
        while is_more:
            page = await self._run(calls.operate.export_page(filter or {}, STEP, cursor))
            cursor, is_more = page.next, page.next is not None
            rest = page if page.looked else None
            while rest is not None:
                part, rest = await self._with_payloads(rest) if payloads and rest.jobs else (rest, None)
                yield part

    async def _with_payloads(self, page: Exported) -> tuple[Exported, Exported | None]:
        """Return the first jobs of a page with their payloads, as many as the server answers at once, and the rest."""
        payloads = await self._run(calls.operate.payloads([job["id"] for job in page.jobs]))
        ready, left = page.jobs[: len(payloads)], page.jobs[len(payloads) :]
        jobs = [{**job, **payload} for job, payload in zip(ready, payloads, strict=True)]
        if not left:
            return Exported(jobs, page.looked, page.next), None
        return Exported(jobs, page.looked, jobs[-1]["id"]), Exported(left, 0, page.next)

    async def clone(self, id: UUID) -> UUID:
        """Enqueue a copy of a job, due now, with the same payload and options. Return its id; raises UnknownJob."""
        return await self._run(calls.operate.clone(id))

    async def edit(self, id: UUID, **changes: Unpack[JobChanges]) -> Answer:
        """Change a job that waits or is dead: ``changed``; raises JobRunning, JobEnded and UnknownJob."""
        return await self._run(calls.operate.edit(id, changes))

    async def find_jobs(
        self,
        filter: JobFilter | None = None,
        *,
        limit: int = 50,
        before: UUID | None = None,
        within: float | None = None,
    ) -> Found:
        """Find jobs, newest first, until there are ``limit`` of them or all have been looked at.

        ``within`` stops the search after that many seconds, with what it has found; 0 is one short step. ``before``
        goes on where a search stopped, from its ``next``.
        """
        until = math.inf if within is None else time.monotonic() + within
        found = await self._run(calls.operate.find_jobs(filter or {}, min(limit, PAGE), before))
        while found.next is not None and len(found.jobs) < limit and time.monotonic() < until:
            wanted = min(limit - len(found.jobs), PAGE)
            page = await self._run(calls.operate.find_jobs(filter or {}, wanted, found.next))
            found = Found([*found.jobs, *page.jobs], found.looked + page.looked, page.next)
        return found

    async def audit(self, *, limit: int = 50, before: int | None = None) -> list[Audit]:
        """Return the audit, newest first; ``before`` continues after the operation of that number."""
        return await self._run(calls.operate.audits(limit, before))
