# Written by tools/unasync.py from operate_async.py: change that and run `make sync`.
"""The client's verbs for operators: on many jobs at once, on queues, and what the audit says."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, TypeVar, Unpack

from dibs.client.schedules import Scheduling
from dibs.db import calls
from dibs.operation import Changed

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from uuid import UUID

    from dibs.db.calls import Call
    from dibs.db.calls.operate import Place
    from dibs.operation import Audit, ErrorGroup, Found, JobFilter, Step
    from dibs.policy import JobChanges
    from dibs.states import Answer

R = TypeVar("R")

STEP, LOOK = 1000, 10_000
"""How many jobs one step changes at most, and how many one counts that changes nothing."""


class Operating(Scheduling):
    """What a client can do for those who run the queues.

    A verb on many jobs is done in steps, each a short transaction: what is interrupted has done a part, and can be
    called again. ``max`` is how many jobs it takes at most, ``dry_run`` only counts them, and ``on_step`` is told how
    far it has come.
    """

    @abstractmethod
    def _run(self, call: Call[R]) -> R: ...

    def delete(
        self,
        filter: JobFilter,
        *,
        max: int | None = None,
        dry_run: bool = False,
        on_step: Callable[[Changed], None] | None = None,
    ) -> Changed:
        """Delete jobs that have succeeded or are dead, with their attempts."""
        return self._in_steps(lambda place, _: calls.operate.delete(filter, place), max, dry_run, on_step)

    def purge(
        self,
        queue: str,
        *,
        max: int | None = None,
        dry_run: bool = False,
        on_step: Callable[[Changed], None] | None = None,
    ) -> Changed:
        """Delete the jobs of a queue that wait, as if they had never been enqueued."""
        return self._in_steps(lambda place, _: calls.operate.purge(queue, place), max, dry_run, on_step)

    def move(
        self,
        filter: JobFilter,
        to: str,
        *,
        max: int | None = None,
        dry_run: bool = False,
        on_step: Callable[[Changed], None] | None = None,
    ) -> Changed:
        """Put jobs that wait or are dead into the queue ``to``."""
        return self._in_steps(lambda place, _: calls.operate.move(filter, to, place), max, dry_run, on_step)

    def retry(
        self,
        filter: JobFilter,
        *,
        rate: float | None = None,
        max: int | None = None,
        dry_run: bool = False,
        on_step: Callable[[Changed], None] | None = None,
    ) -> Changed:
        """Bring dead jobs back, due now, or ``rate`` of them per second.

        A filter without ``ids`` and ``states`` leaves cancelled jobs alone.
        """

        def ask(place: Place, matched: int) -> Call[Step]:
            return calls.operate.retry(filter, rate, matched / rate if rate else 0.0, place)

        return self._in_steps(ask, max, dry_run, on_step)

    def cancel_where(
        self,
        filter: JobFilter,
        *,
        reason: str = "cancelled by request",
        max: int | None = None,
        dry_run: bool = False,
        on_step: Callable[[Changed], None] | None = None,
    ) -> Changed:
        """Cancel jobs that wait, and ask the holders of those that run to stop."""
        return self._in_steps(lambda place, _: calls.operate.cancel_where(filter, reason, place), max, dry_run, on_step)

    def undo(
        self,
        operation: int,
        *,
        dry_run: bool = False,
        on_step: Callable[[Changed], None] | None = None,
    ) -> Changed:
        """Undo a ``cancel_where``, a ``retry`` or a ``redrive`` of the last hour, where nothing ran since."""
        return self._in_steps(lambda place, _: calls.operate.undo(operation, place), None, dry_run, on_step)

    def _in_steps(
        self,
        ask: Callable[[Place, int], Call[Step]],
        max: int | None,
        dry_run: bool,
        on_step: Callable[[Changed], None] | None,
    ) -> Changed:
        so_far = Changed(0, 0, None, more=True)
        after: UUID | None = None
        while so_far.more and (max is None or so_far.matched < max):
            step_size = LOOK if dry_run else STEP
            most = step_size if max is None else min(step_size, max - so_far.matched)
            step = self._run(ask((most, after, so_far.operation, dry_run), so_far.matched))
            after = step.next
            so_far = Changed(
                so_far.matched + step.matched, so_far.done + step.done, step.operation, more=after is not None
            )
            if on_step is not None:
                on_step(so_far)
        return so_far

    def edit(self, id: UUID, **changes: Unpack[JobChanges]) -> Answer:
        """Change a job that waits or is dead: ``changed``; raises JobRunning, JobEnded and UnknownJob."""
        return self._run(calls.operate.edit(id, changes))

    def drop_queue(self, name: str) -> bool:
        """Take a queue away that has no jobs and no schedule, with its policy; raises QueueInUse and UnknownQueue."""
        return self._run(calls.operate.drop_queue(name))

    def find_jobs(self, filter: JobFilter | None = None, *, limit: int = 50, before: UUID | None = None) -> Found:
        """Look for jobs, newest first; ``before`` goes on where a search stopped."""
        return self._run(calls.operate.find_jobs(filter or {}, limit, before))

    def audits(self, *, limit: int = 50, before: int | None = None) -> list[Audit]:
        """Who changed what, newest first; ``before`` continues after the operation of that number."""
        return self._run(calls.operate.audits(limit, before))

    def error_groups(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        since: datetime | None = None,
        limit: int = 50,
    ) -> list[ErrorGroup]:
        """Failures that are alike, those that happened last first."""
        return self._run(calls.operate.error_groups(queue, kind, since, limit))
