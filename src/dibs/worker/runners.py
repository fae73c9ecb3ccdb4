"""Runs the buffered jobs, up to a number at once, and stops those that were cancelled or lost.

A run that is to stop is first *told* so; its handler may look. Then it is *broken off*: its task is cancelled, and so
its thread is left or its process killed. A handler that goes on in spite of that is *left behind*. Jobs that have not
begun, or were stopped because the worker stops, are *given back*: they wait for another worker.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Literal

from dibs.client.context import tell_stop
from dibs.events import Trouble
from dibs.runtime import end, wait_at_most
from dibs.runtime.ending import drop_cancellations, error_of
from dibs.runtime.points import reach
from dibs.worker.batches import Batch, Batches
from dibs.worker.buffer import Buffer
from dibs.worker.run_end import RunEnd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dibs.client.context import Context
    from dibs.client.task import Task
    from dibs.events import Events
    from dibs.job import Claimed
    from dibs.worker.completer import Completer
    from dibs.worker.executor import Executor
    from dibs.worker.keeper import Keeper

YIELD_EVERY = 0.01
"""A runner whose handlers never wait lets other tasks run after this many seconds."""
CANCEL_EVERY = 1.0
"""Seconds between two cancellations of a handler that goes on while the worker stops."""
LEAVE_BEHIND_AFTER = 3.0
"""Seconds after its first cancellation until such a handler is left behind."""
BREAK_OFF_AFTER = 3.0
"""Seconds that a handler in a thread or a process has to end after its job was cancelled."""
SEND_LAST_ENDS_WITHIN = 3.0
"""Seconds to send the last ends when the worker closes."""

Reason = Literal["cancelled", "stopping", "lost"]
"""Why a job is to stop: it was cancelled, the worker stops, or its lease was lost."""
SEVERITY: Mapping[Reason, int] = {"cancelled": 0, "stopping": 1, "lost": 2}
"""A severer reason replaces a milder one."""


class Runners:
    """Tasks of the event loop, each of which runs one job or one batch at a time."""

    def __init__(self, executor: Executor, keeper: Keeper, completer: Completer, events: Events) -> None:
        self._events = events
        self._executor = executor
        self._keeper = keeper
        self._completer = completer
        self._buffer = Buffer()
        self._set_aside: Claimed | None = None
        self._batches = Batches()
        # By run: its context, and the task that runs it. While a batch is filling, only its first job is here.
        self._running: dict[bytes, tuple[Context, asyncio.Task[Any]]] = {}
        self._in_batch: set[bytes] = set()
        # The reasons to stop runs, until their end is reported. A buffered job may have one, too.
        self._stop_reasons: dict[bytes, Reason] = {}
        self._none_running = asyncio.Event()
        self._none_running.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._winding_up = False
        self._closing = False
        self._left_behind = 0

    def start(self, count: int) -> None:
        """Begin to run jobs, up to ``count`` at once, to keep their leases and to send how they ended."""
        loop = asyncio.get_running_loop()
        self._keeper.start(lambda job, reason: loop.call_soon_threadsafe(self._stop, job._run_key, reason))
        self._start_completer()
        for n in range(count):
            self._start_runner(f"runner-{n}")

    def _start_completer(self) -> None:
        self._completing = asyncio.create_task(self._completer.run(), name="completer")
        self._completing.add_done_callback(self._replace_completer)

    def _replace_completer(self, task: asyncio.Task[None]) -> None:
        if not self._closing:
            self._events.tell(Trouble("sending outcomes", error_of(task)))
            self._start_completer()

    def _start_runner(self, name: str) -> None:
        task = asyncio.create_task(self._run_jobs(), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._replace_runner)

    def _replace_runner(self, task: asyncio.Task[None]) -> None:
        """Unless we are closing, report the job of a runner that ended by an error, and start another runner."""
        self._tasks.discard(task)
        if self._closing:
            return
        error = error_of(task)
        self._events.tell(Trouble(f"running jobs ({task.get_name()})", error))
        jobs = [context.job for context, runner in self._running.values() if runner is task]
        self._report([RunEnd(job, "fail", error=f"the worker's own runner failed: {error!r}") for job in jobs])
        self._forget(jobs)
        self._start_runner(task.get_name())

    async def close(self) -> None:
        """Stop the runners and send how the last jobs ended. A handler that goes on is left behind."""
        self._closing = True
        self.give_back()
        for key in list(self._running):
            self._stop(key, "stopping")
        # Handlers that `wind_up` left behind have had their time.
        await end(list(self._tasks), within=LEAVE_BEHIND_AFTER / 10 if self._left_behind else LEAVE_BEHIND_AFTER)
        self._completer.end()
        try:
            await wait_at_most(self._completing, SEND_LAST_ENDS_WITHIN)
            self._completer.give_up_unfinished()
        finally:
            await self._executor.close()
            self._keeper.close()

    @property
    def running(self) -> int:
        """The number of jobs that run now."""
        return len(self._running)

    # Buffered jobs

    @property
    def has_buffered(self) -> bool:
        """True while there are jobs that have not begun."""
        return bool(self._buffer)

    def take(self, jobs: list[Claimed], claimed_after: float) -> list[Claimed]:
        """Keep the leases of these jobs, which began after ``claimed_after``, and buffer the jobs to run them.

        If the answer to the claim came so late that leases may be over, give these jobs back. Return the others.
        """
        if late := self._keeper.take(jobs, claimed_after):
            self._report([RunEnd(job, "release") for job in late])
            jobs = [job for job in jobs if self._keeper.holds(job._run_key)]
        self._buffer.add(jobs)
        if jobs:
            reach("worker.claimed")
        return jobs

    def set_aside(self, job: Claimed, others: Sequence[Claimed]) -> None:
        """Take ``job`` out of the buffer until :meth:`put_back`, and give the others back."""
        for buffered in (job, *others):
            self._buffer.remove(buffered)
        self._set_aside = job
        self._report([RunEnd(other, "release") for other in others])

    def put_back(self) -> None:
        """Run the job that was set aside."""
        if self._set_aside is not None:
            self._buffer.add([self._set_aside])
            self._set_aside = None

    def give_back(self) -> None:
        """Give back the jobs that have not begun, also one that is set aside."""
        self.put_back()
        self._report([RunEnd(job, "release") for job in self._buffer.empty()])

    # Running

    async def _run_jobs(self) -> None:
        runner = asyncio.current_task()
        assert runner is not None
        yield_at = 0.0
        while not self._closing:
            if not self._buffer:
                await self._buffer.wait()
                yield_at = time.monotonic() + YIELD_EVERY
                continue
            job = self._buffer.take()
            context = self._executor.context(job)
            self._running[job._run_key] = (context, runner)
            self._none_running.clear()
            task = self._executor.task(job.kind)
            if self._stop_reasons and job._run_key in self._stop_reasons:
                self._end_stopped(job, self._stop_reasons.pop(job._run_key))
                self._forget([job])
            elif task is None:
                self._report([self._executor.park(job)])
                self._forget([job])
            else:
                if task.settings.batch is None:
                    await self._run_one(context, task)
                else:
                    await self._run_batch(context, task, runner)
                if runner.cancelling():
                    await drop_cancellations(runner)
            if time.monotonic() > yield_at:
                await asyncio.sleep(0)
                yield_at = time.monotonic() + YIELD_EVERY

    async def _run_one(self, context: Context, task: Task[Any, Any]) -> None:
        jobs = [context.job]
        try:
            ends = [await self._executor.attempt(task, context, self._stop_reasons)]
        except BaseException as error:
            ends = self._ends_of_broken_off(jobs, error)
        if context.job._run_key in self._running:  # Otherwise it was left behind, and its end is reported.
            self._report(ends)
            self._forget(jobs)

    async def _run_batch(self, context: Context, task: Task[Any, Any], runner: asyncio.Task[Any]) -> None:
        """Add this job to the batch of its kind that is filling. If there is none, fill one and run it here."""
        if self._batches.join(task, context.job):
            self._running.pop(context.job._run_key)
            return
        batch = Batch(context.job)
        jobs = batch.jobs
        try:
            await self._batches.fill(task, batch)
            contexts = self._begin_batch(batch, runner)
            jobs = [one.job for one in contexts]
            ends = await self._executor.attempt_batch(task, contexts, lambda: self._is_stopping(jobs))
        except BaseException as error:
            ends = self._ends_of_broken_off(jobs, error)
        if not self._is_left_behind(jobs):
            self._report(ends)
            self._forget(jobs)

    def _is_left_behind(self, jobs: list[Claimed]) -> bool:
        """Return true if :meth:`wind_up` has already reported the end of these jobs, which one handler runs."""
        return bool(jobs) and jobs[0]._run_key not in self._running

    def _ends_of_broken_off(self, jobs: list[Claimed], error: BaseException) -> list[RunEnd]:
        """Return the failures of a run that broke off. If we broke it off, return none, and report its jobs here."""
        if not any(job._run_key in self._stop_reasons for job in jobs):
            return [RunEnd(job, "fail", error=f"the run broke off: {error!r}") for job in jobs]
        for job in jobs:  # Without a separate reason, a job of the same batch is given back.
            self._end_stopped(job, self._stop_reasons.pop(job._run_key, "stopping"))
        return []

    def _is_stopping(self, jobs: list[Claimed]) -> bool:
        return any(self._stop_reasons.get(job._run_key) == "stopping" for job in jobs)

    def _begin_batch(self, batch: Batch, runner: asyncio.Task[Any]) -> list[Context]:
        """Return contexts for the jobs of a batch. End those that were stopped while the batch was filling."""
        contexts = []
        for job in batch.jobs:
            key = job._run_key
            if key in self._stop_reasons:
                self._running.pop(key, None)
                self._end_stopped(job, self._stop_reasons.pop(key))
                continue
            context = self._executor.context(job)
            self._running[key] = (context, runner)
            self._in_batch.add(key)
            if self._winding_up:
                tell_stop(context, "stopping")
            contexts.append(context)
        return contexts

    def _forget(self, jobs: list[Claimed]) -> None:
        """Forget runs whose end is reported. Once none is left, ``wind_up`` may end the runner that calls this."""
        for job in jobs:
            self._running.pop(job._run_key, None)
            if self._in_batch:
                self._in_batch.discard(job._run_key)
        if not self._running:
            self._none_running.set()

    def _report(self, ends: Sequence[RunEnd]) -> None:
        for run_end in ends:
            key = run_end.job._run_key
            if self._stop_reasons:
                self._stop_reasons.pop(key, None)
            self._keeper.let_go(key)
            self._completer.add(run_end)

    # Stopping

    def stop_queues(self, names: frozenset[str]) -> None:
        """Stop the jobs of exclusive queues and shards that another worker is about to claim from."""
        for job in self._keeper.jobs_of(names):
            self._stop(job._run_key, "lost")

    def _stop(self, key: bytes, reason: Reason) -> None:
        """Tell a run to stop, and cancel it as far as this reason and its handler allow.

        ==========  =====================  ============================  =========
        reason      on the event loop      in a thread or a process      in a batch
        ==========  =====================  ============================  =========
        cancelled   at once                after ``BREAK_OFF_AFTER``     only told
        stopping    at once                at once                       at once
        lost        at once                at once                       only told
        ==========  =====================  ============================  =========

        In a batch a cancelled or lost job goes on with the others; if it is no longer ours, its outcome is refused. For
        a buffered job only the reason is noted, for the runner that takes it.
        """
        if not self._keeper.holds(key):
            return
        known = self._stop_reasons.get(key)
        if known is not None and SEVERITY[known] >= SEVERITY[reason]:
            return
        self._stop_reasons[key] = reason
        if key not in self._running:
            return
        context, runner = self._running[key]
        tell_stop(context, reason)
        if key in self._in_batch and reason != "stopping":
            return
        runs_elsewhere = context._send_stop is not None
        if reason == "cancelled" and runs_elsewhere:
            asyncio.get_running_loop().call_later(BREAK_OFF_AFTER, self._break_off, key)
        else:
            runner.cancel()

    def _break_off(self, key: bytes) -> None:
        """Leave the thread, or kill the process, of a cancelled job whose handler has had time to end."""
        if key in self._running and self._stop_reasons.get(key) == "cancelled":
            self._running[key][1].cancel()

    def _end_stopped(self, job: Claimed, reason: Reason) -> None:
        """Report the end of a job that was told to stop. A lost job is no longer ours to report."""
        if reason == "lost":
            self._keeper.let_go(job._run_key)
            self._completer.give_up_job(job)
        elif reason == "cancelled":
            self._report([RunEnd(job, "fail", error="cancelled", final=True, ran=self._ran(job))])
        else:
            self._report([RunEnd(job, "release", ran=self._ran(job))])

    def _ran(self, job: Claimed) -> float:
        running = self._running.get(job._run_key)
        return 0.0 if running is None else time.monotonic() - running[0]._began

    async def wind_up(self, grace: float, hurry: asyncio.Event) -> int:
        """Stop running jobs and lose none. Call :meth:`close` afterwards.

        Give back the buffered jobs and tell the handlers to stop. After the grace time, or when hurried, cancel those
        that still run and give their jobs back. Return the number of handlers that went on: they are left behind.
        """
        self._winding_up = True
        self.give_back()
        for context, _ in self._running.values():
            tell_stop(context, "stopping")
        all_ended, hurried = asyncio.create_task(self._none_running.wait()), asyncio.create_task(hurry.wait())
        await asyncio.wait({all_ended, hurried}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        for key in list(self._running):
            self._stop(key, "stopping")
        leave_at = time.monotonic() + LEAVE_BEHIND_AFTER
        while self._running and time.monotonic() < leave_at:
            await asyncio.wait({all_ended}, timeout=CANCEL_EVERY)
            for _, runner in list(self._running.values()):
                runner.cancel()
        await end([all_ended, hurried])
        return self._leave_behind()

    def _leave_behind(self) -> int:
        jobs = [context.job for context, _ in self._running.values()]
        for job in jobs:
            self._end_stopped(job, self._stop_reasons.pop(job._run_key, "stopping"))
        self._forget(jobs)
        self._left_behind = len(jobs)
        return self._left_behind
