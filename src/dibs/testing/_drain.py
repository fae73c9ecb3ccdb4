"""Runs all due jobs with a real worker, in this process."""

from __future__ import annotations

import asyncio
import functools
import math
from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dibs.client.context import running
from dibs.db import calls
from dibs.errors import InvalidArgument
from dibs.events import RunEnded
from dibs.maintenance import ChoreFailed, do
from dibs.policy import Seconds, seconds
from dibs.retry import Snooze
from dibs.scheduler import declare
from dibs.states import Outcome, State
from dibs.testing.clock import Clock
from dibs.worker import Worker, WorkerSettings
from dibs.worker.launch import refuse_running_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence, Set
    from uuid import UUID

    from dibs.client.app import App
    from dibs.client.task import Task
    from dibs.db.database_async import AsyncDatabase
    from dibs.info import JobSummary

ALL = 1_000_000
"""A number larger than the jobs of any test."""
SHOWN = 20
_MAY_BE_CLAIMED = frozenset({State.READY, State.BLOCKED})
"""A blocked job of ours may be one that another app has parked: a worker of ours unparks it."""
_WAITING = frozenset({State.READY, State.SCHEDULED})


@dataclass(frozen=True, slots=True)
class Drained:
    """The result of a drain: the jobs that ended, those that still wait, and the seconds it moved the clock by."""

    ended: tuple[JobSummary, ...]
    left: tuple[JobSummary, ...]
    moved: float = 0.0

    @property
    def by_state(self) -> dict[str, int]:
        """The number of jobs by the state they ended in; only states that occurred."""
        return dict(Counter(job.state for job in self.ended))

    def __len__(self) -> int:
        return len(self.ended)


class HandlerFailed(AssertionError):
    """A handler failed while ``drain(raise_errors=True)`` ran it; its own exception is the cause of this one."""


def drain(
    app: App,
    *,
    queues: Sequence[str] | None = None,
    include_scheduled: bool = False,
    schedules: bool = False,
    within: Seconds | None = None,
    raise_errors: bool = False,
    slots: int = 1,
    timeout: float = 60.0,
) -> Drained:
    """Run everything that is due, with a real worker in this process, until nothing is left.

    First it rescues jobs whose lease has run out, and expires jobs past their time. By default it serves the queues in
    which jobs of the app's tasks wait. ``include_scheduled`` moves the virtual clock to the next due time, again and
    again, by ``within`` seconds in all. ``schedules`` declares those of the app and lets every schedule make its due
    jobs; with ``include_scheduled`` the clock also moves to their next slots, so set ``within``. ``raise_errors`` stops
    at the first handler that raises, with HandlerFailed.
    """
    refuse_running_loop("drain()", "await adrain(…)")

    async def run() -> Drained:
        try:
            return await adrain(
                app,
                queues=queues,
                include_scheduled=include_scheduled,
                schedules=schedules,
                within=within,
                raise_errors=raise_errors,
                slots=slots,
                timeout=timeout,
            )
        finally:
            await app.aclose()

    return asyncio.run(run())


async def adrain(
    app: App,
    *,
    queues: Sequence[str] | None = None,
    include_scheduled: bool = False,
    schedules: bool = False,
    within: Seconds | None = None,
    raise_errors: bool = False,
    slots: int = 1,
    timeout: float = 60.0,
) -> Drained:
    """Drain as :func:`drain` does, on the running event loop: handlers share it with the test."""
    if schedules and include_scheduled and within is None:
        raise InvalidArgument("schedules go on forever", hint="give within=, the seconds to move the clock at most")
    if within is not None and not include_scheduled:
        raise InvalidArgument("within bounds how far the clock is moved", hint="give include_scheduled=True with it")
    longest_move = math.inf if within is None else seconds(within)
    work = _Drain(app, queues, slots, asyncio.get_running_loop().time() + timeout, schedules)
    before = {job.id for job in work.jobs() if State(job.state).has_ended}
    with work.watching() if raise_errors else nullcontext():
        moved = await work.run(longest_move if include_scheduled else None)
    jobs = work.jobs()
    ended = tuple(job for job in jobs if State(job.state).has_ended and job.id not in before)
    work.raise_failure()  # Only a drain that watches for failures has one.
    return Drained(ended, tuple(job for job in jobs if not State(job.state).has_ended), moved)


class _Drain:
    def __init__(self, app: App, queues: Sequence[str] | None, slots: int, until: float, schedules: bool) -> None:
        self._app = app
        self._queues = queues
        self._slots = slots
        self._until = until
        self._schedules = schedules
        self._loop = asyncio.get_running_loop()
        self._worker: Worker | None = None
        self._errors: dict[UUID, Exception] = {}  # Errors that handlers in this process raised, by job.
        self._failed: RunEnded | None = None  # The first run that counts as failed.
        self._is_stuck = False

    def jobs(self) -> list[JobSummary]:
        """Return every job, oldest first."""
        return self._app.client.find_jobs(limit=ALL).jobs[::-1]

    async def run(self, budget: float | None) -> float:
        """Work until nothing is due. With a budget of virtual seconds, move the clock and continue."""
        moved = 0.0
        if self._schedules:
            await declare(self._database, self._app.schedules)
        while self._failed is None:
            if (self._schedules and await self._fire()) or await self._round():
                self._is_stuck = False
                continue
            step = self._next_step() if budget is not None else None
            if step is None or budget is None or moved + step > budget:
                break
            self._is_stuck = step == 0
            self._move(step)
            moved += step
        return moved

    @property
    def _database(self) -> AsyncDatabase:
        return self._app.async_client()._database

    async def _fire(self) -> bool:
        """Let schedules make the jobs that are due. True if there were any."""
        if self._loop.time() > self._until:
            raise TimeoutError("drain was not done in time; its schedules make more and more jobs")
        done = await do(self._database, "schedule", force=True)
        if isinstance(done, ChoreFailed):
            raise done.error
        return done.counts["fired"] > 0

    async def _round(self) -> bool:
        """Rescue and expire jobs. Then run a worker if a job of ours is due. True if it ended a run."""
        self._app.client.upkeep.rescue()
        self._app.client.upkeep.expire()
        due = self._runnable(_MAY_BE_CLAIMED)
        if not due:
            return False
        settings = WorkerSettings(
            self._queues_of(due), slots=self._slots, drain=True, upkeep=False, grace=5.0, name="drain"
        )
        self._worker = Worker(self._app, settings)
        await self._work(self._worker)
        return self._worker.ended > 0

    async def _work(self, worker: Worker) -> None:
        running = asyncio.create_task(worker.run())
        done, _ = await asyncio.wait({running}, timeout=self._until - self._loop.time())
        if not done:
            worker.stop()
            worker.hurry()
            await running
            raise TimeoutError(f"drain was not done in time; still waiting:\n{_listed(self._runnable(_WAITING))}")
        await running

    def _runnable(self, states: Set[State]) -> list[JobSummary]:
        """Return the jobs in these states that a worker of this drain can run, now or later.

        Jobs of other apps and of paused queues stay due whatever it does: with them the drain would never end.
        """
        paused = {queue.name for queue in self._app.client.queues.list() if queue.paused_at is not None}
        return [
            job
            for job in self.jobs()
            if job.kind in self._app.tasks
            and job.queue not in paused
            and (self._queues is None or job.queue in self._queues)
            and job.state in states
        ]

    def _queues_of(self, due: list[JobSummary]) -> tuple[str, ...]:
        return tuple(self._queues) if self._queues is not None else tuple(sorted({job.queue for job in due}))

    def _next_step(self) -> float | None:
        waiting = self._runnable(_WAITING)
        now = self._app.client._run(calls.schema.now())
        steps = [max(0.0, (job.due_at - now).total_seconds()) for job in waiting]
        if self._is_stuck:  # The last round could claim no due job, and the next one could not either.
            steps = [step for step in steps if step > 0]
        if self._schedules:
            # A slot in the past is left out: its schedule was tried and could not fire, at this time or a later one.
            slots = [s.next_scheduled for s in self._app.client.schedules.list() if s.paused_at is None]
            steps += [(slot - now).total_seconds() for slot in slots if slot is not None and slot > now]
        return min(steps, default=None)

    def _move(self, step: float) -> None:
        clock = Clock(self._app.client.dsn)
        if not clock.is_installed():
            raise InvalidArgument(
                "include_scheduled moves the clock, and this database has the real one",
                hint="use the fixture dibs_dsn, or Clock(dsn).install() in a database that is only for tests",
            )
        clock.move(step)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch for the first failure, and keep the exceptions of handlers, of which an event has only the text."""
        kept = {task: task.function for task in self._app.tasks.values()}
        for task in kept:
            task.function = _reporting(task, self._on_error)
        self._app.events.on(RunEnded, self._on_end)
        try:
            yield
        finally:
            self._app.events.off(RunEnded, self._on_end)
            for task, function in kept.items():
                task.function = function

    def _on_error(self, error: Exception) -> None:
        """Keep the exception of a handler, perhaps from a thread. Its run may still end otherwise than as failed."""
        ctx = running()
        for attempt in ctx.batch if ctx is not None else ():
            self._errors[attempt.id] = error
        if self._worker is not None:
            self._loop.call_soon_threadsafe(self._worker.stop)

    def _on_end(self, event: RunEnded) -> None:
        if event.outcome == Outcome.FAILED and self._failed is None:
            self._failed = event
            if self._worker is not None:
                self._worker.stop()

    def raise_failure(self) -> None:
        """Raise the first failure, with the exception of its handler as the cause if it ran in this process."""
        if self._failed is None:
            return
        job = self._failed.job
        shown = self._app.client.show(job.id) or {"attempts": []}
        errors = [attempt["error"] for attempt in shown["attempts"] if attempt["error"]]
        said = (errors[-1] if errors else self._failed.error or "").strip()
        line = said.partition("\n")[0]
        cause = self._errors.get(job.id)
        raise HandlerFailed(f"{job.kind} failed: {line if cause else said}") from cause


def _listed(jobs: list[JobSummary]) -> str:
    lines = [f"  {job.kind} {job.state} in {job.queue}, due {job.due_at}, attempts {job.attempts}" for job in jobs]
    return "\n".join([*lines[:SHOWN], *([f"  and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else [])])


def _reporting(task: Task[Any, Any], report: Callable[[Exception], None]) -> Callable[..., Any]:
    function = task.function

    @contextmanager
    def reported() -> Iterator[None]:
        try:
            yield
        except Snooze:
            raise
        except Exception as error:
            report(error)
            raise

    if task.is_async:

        @functools.wraps(function)
        async def on_the_loop(*args: Any, **kwargs: Any) -> Any:
            with reported():
                return await function(*args, **kwargs)

        return on_the_loop

    @functools.wraps(function)
    def in_a_thread(*args: Any, **kwargs: Any) -> Any:
        with reported():
            return function(*args, **kwargs)

    return in_a_thread
