"""Runs the jobs in stock, up to a number at once, and stops those that were cancelled or lost."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, Literal

from dibs.client.context import tell_stop
from dibs.events import Trouble
from dibs.runtime import end, limited
from dibs.runtime.points import reach
from dibs.worker.batches import Batches
from dibs.worker.run_end import RunEnd
from dibs.worker.stock import Stock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.client.context import Context
    from dibs.client.task import Task
    from dibs.events import Events
    from dibs.job import Claimed
    from dibs.worker.completer import Completer
    from dibs.worker.executor import Executor
    from dibs.worker.keeper import Keeper

TURN = 0.01
"""A runner that never waits lets others run after this many seconds."""
AGAIN = 1.0
"""A handler that goes on after it was told to stop is told again after this many seconds."""
LEAVE = 3.0
"""A handler that still goes on after this many seconds is left behind."""
SENDING = 3.0
"""How many seconds the last ends have to be sent in."""

Why = Literal["cancelled", "stopping", "lost"]
WHY: tuple[Why, ...] = ("cancelled", "stopping", "lost")
"""Why a job is to stop; a later one counts more."""


class Runners:
    """Tasks of the event loop, each running one job or one batch at a time, and what serves them."""

    def __init__(self, executor: Executor, keeper: Keeper, completer: Completer, events: Events) -> None:
        self._events = events
        self._executor = executor
        self._keeper = keeper
        self._completer = completer
        self._stock = Stock()
        self._batches = Batches()
        self._running: dict[bytes, tuple[Context, asyncio.Task[Any]]] = {}
        self._batched: set[bytes] = set()
        self._told: dict[bytes, Why] = {}
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._winding_up = False
        self._closing = False
        self._left = 0

    def start(self, count: int) -> None:
        """Begin to run jobs, up to ``count`` at once, to keep their leases and to send how they ended."""
        loop = asyncio.get_running_loop()
        self._keeper.start(lambda job, why: loop.call_soon_threadsafe(self._stop, job._run_key, why))
        self._start_completer()
        for n in range(count):
            self._start_runner(f"runner-{n}")

    def _start_completer(self) -> None:
        self._completing = asyncio.create_task(self._completer.run(), name="completer")
        self._completing.add_done_callback(self._replace_completer)

    def _replace_completer(self, task: asyncio.Task[None]) -> None:
        if not self._closing:
            self._events.tell(Trouble("sending outcomes", _raised(task)))
            self._start_completer()

    def _start_runner(self, name: str) -> None:
        task = asyncio.create_task(self._work(), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._replace)

    def _replace(self, task: asyncio.Task[None]) -> None:
        """A runner has ended: unless we are closing, its job failed and another runner takes its place."""
        self._tasks.discard(task)
        if self._closing:
            return
        error = _raised(task)
        self._events.tell(Trouble(f"running jobs ({task.get_name()})", error))
        jobs = [here.job for here, runner in self._running.values() if runner is task]
        self._report([RunEnd(job, "fail", error=f"the worker's own runner failed: {error!r}") for job in jobs])
        self._forget(jobs)
        self._start_runner(task.get_name())

    async def close(self) -> None:
        """End the runners, whatever they do, once it is sent how their jobs ended; a handler that goes on is left."""
        self._closing = True
        for key in list(self._running):
            self._stop(key, "stopping")
        await end(list(self._tasks), within=LEAVE / 10 if self._left else LEAVE)
        self._completer.end()
        await limited(self._completing, SENDING)
        self._completer.give_up()
        await self._executor.close()
        self._keeper.close()

    @property
    def running(self) -> int:
        """How many jobs run now."""
        return len(self._running)

    # What there is to run

    @property
    def has_stock(self) -> bool:
        """Whether there are jobs that have not begun."""
        return bool(self._stock)

    def take(self, jobs: list[Claimed], since: float) -> list[Claimed]:
        """Keep the leases of these jobs, which began after ``since``, and run them; what came too late goes back."""
        if late := self._keeper.take(jobs, since):
            self._report([RunEnd(job, "release") for job in late])
            jobs = [job for job in jobs if self._keeper.holds(job._run_key)]
        self._stock.add(jobs)
        if jobs:
            reach("worker.claimed")
        return jobs

    def set_aside(self, job: Claimed, others: Sequence[Claimed]) -> None:
        """Let this job wait, and give back these others."""
        for one in (job, *others):
            self._stock.remove(one)
        self._report([RunEnd(other, "release") for other in others])

    def put_back(self, job: Claimed) -> None:
        """Run the job that was set aside."""
        self._stock.add([job])

    def give_back(self) -> None:
        """Give back what has not begun."""
        self._report([RunEnd(job, "release") for job in self._stock.empty()])

    # Running

    async def _work(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        turn = 0.0
        while not self._closing:
            if not self._stock:
                await self._stock.wait()
                turn = time.monotonic() + TURN
                continue
            job = self._stock.take()
            here = self._executor.context(job)
            self._running[job._run_key] = (here, me)
            self._quiet.clear()
            task = self._executor.task(job.kind)
            if self._told and job._run_key in self._told:
                self._finish(job, self._told.pop(job._run_key))
                self._forget([job])
            elif task is None:
                self._report([self._executor.unknown(job)])
                self._forget([job])
            else:
                await self._run(here, task, me)
                if me.cancelling():
                    await _calm(me)
            if time.monotonic() > turn:
                await asyncio.sleep(0)
                turn = time.monotonic() + TURN

    async def _run(self, here: Context, task: Task[Any, Any], me: asyncio.Task[Any]) -> None:
        job = here.job
        if task.settings.batch is not None and self._batches.join(task, job):
            self._running.pop(job._run_key)  # The runner that opened the batch runs it.
            return
        jobs = [job]
        try:
            if task.settings.batch is None:
                ends = [await self._executor.attempt(task, here, self._told)]
            else:
                await self._batches.gather(task, jobs)
                attempts = self._begin_batch(jobs, me)
                ends = await self._executor.attempt_batch(task, attempts, lambda: self._is_stopping(jobs))
        except BaseException as error:
            ends = self._ends_of(jobs, error)
        if not jobs or jobs[0]._run_key in self._running:  # Otherwise it was left behind, and is no longer ours.
            self._report(ends)
            self._forget(jobs)

    def _ends_of(self, jobs: list[Claimed], error: BaseException) -> list[RunEnd]:
        """How jobs ended whose run was broken off: by us if one was told to stop, otherwise it was a failure."""
        if not any(job._run_key in self._told for job in jobs):
            return [RunEnd(job, "fail", error=f"the run broke off: {error!r}") for job in jobs]
        for job in jobs:
            self._finish(job, self._told.pop(job._run_key, "stopping"))
        return []

    def _is_stopping(self, jobs: list[Claimed]) -> bool:
        return any(self._told.get(job._run_key) == "stopping" for job in jobs)

    def _begin_batch(self, jobs: list[Claimed], me: asyncio.Task[Any]) -> list[Context]:
        for job in [job for job in jobs if job._run_key in self._told]:
            jobs.remove(job)
            self._running.pop(job._run_key, None)
            self._finish(job, self._told.pop(job._run_key))
        attempts = [self._executor.context(job) for job in jobs]
        for here in attempts:
            self._running[here.job._run_key] = (here, me)
            self._batched.add(here.job._run_key)
            if self._winding_up:
                tell_stop(here, "stopping")
        return attempts

    def _forget(self, jobs: list[Claimed]) -> None:
        """The last step of a run, after its report: ``wind_up`` may end this runner as soon as all is quiet."""
        for job in jobs:
            self._running.pop(job._run_key, None)
            if self._batched:
                self._batched.discard(job._run_key)
        if not self._running:
            self._quiet.set()

    def _report(self, ends: Sequence[RunEnd]) -> None:
        for one in ends:
            key = one.job._run_key
            if self._told:
                self._told.pop(key, None)
            self._keeper.let_go(key)
            self._completer.add(one)

    # Stopping

    def stop_queues(self, names: frozenset[str]) -> None:
        """Stop the jobs of exclusive queues and shards that another worker is about to claim from."""
        for job in self._keeper.of_queues(names):
            self._stop(job._run_key, "lost")

    def _stop(self, key: bytes, why: Why) -> None:
        if not self._keeper.holds(key) or (key in self._told and WHY.index(self._told[key]) >= WHY.index(why)):
            return
        self._told[key] = why
        if key not in self._running:
            return
        here, runner = self._running[key]
        tell_stop(here, why)
        if key in self._batched and why != "stopping":
            return  # One job of a batch does not stop the others; its outcome is refused if it is no longer ours.
        if why == "cancelled" and here._tell is not None:
            asyncio.get_running_loop().call_later(LEAVE, self._break_off, key)
        else:
            runner.cancel()

    def _break_off(self, key: bytes) -> None:
        """Leave a thread behind, or kill a process, that had time to look and went on though its job is cancelled."""
        if key in self._running and self._told.get(key) == "cancelled":
            self._running[key][1].cancel()

    def _finish(self, job: Claimed, why: Why) -> None:
        """End a job that was told to stop: one that is lost is no longer ours to report."""
        if why == "lost":
            self._keeper.let_go(job._run_key)
            self._completer.lose(job)
        elif why == "cancelled":
            self._report([RunEnd(job, "fail", error="cancelled", final=True, ran=self._ran(job))])
        else:
            self._report([RunEnd(job, "release", ran=self._ran(job))])

    def _ran(self, job: Claimed) -> float:
        running = self._running.get(job._run_key)
        return 0.0 if running is None else time.monotonic() - running[0]._began

    async def wind_up(self, grace: float, hurry: asyncio.Event) -> int:
        """Give back what has not begun, tell the rest, let it finish within the grace time, and give back what did not.

        Returns how many handlers went on though they were told to stop: they are left behind.
        """
        self._winding_up = True
        self.give_back()
        for here, _ in self._running.values():
            tell_stop(here, "stopping")
        quiet, hurried = asyncio.create_task(self._quiet.wait()), asyncio.create_task(hurry.wait())
        await asyncio.wait({quiet, hurried}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        for key in list(self._running):
            self._stop(key, "stopping")
        leave = time.monotonic() + LEAVE
        while self._running and time.monotonic() < leave:
            await asyncio.wait({quiet}, timeout=AGAIN)
            for _, runner in list(self._running.values()):
                runner.cancel()
        await end([quiet, hurried])
        return self._leave()

    def _leave(self) -> int:
        left = [here.job for here, _ in self._running.values()]
        for job in left:
            self._finish(job, self._told.pop(job._run_key, "stopping"))
        self._forget(left)
        self._left = len(left)
        return self._left


def _raised(task: asyncio.Task[None]) -> BaseException:
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    return error or RuntimeError(f"{task.get_name()} returned")


async def _calm(runner: asyncio.Task[Any]) -> None:
    """Undo cancellations that a handler swallowed, or made itself; one that is not delivered yet is delivered here.

    Otherwise it would end the runner, or a later job.
    """
    while runner.cancelling():
        runner.uncancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
