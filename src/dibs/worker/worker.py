"""The worker: claims as many jobs as there is room for, runs them, and stops without losing any."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from dibs.client.find import find_database
from dibs.client.transaction import Databases
from dibs.cluster import Holding, Leader, Member
from dibs.db import calls
from dibs.db.listen import AsyncBell
from dibs.errors import DibsError, NotPermitted, ShardNotHeld
from dibs.events import (
    JobsClaimed,
    RunLost,
    Trouble,
    UpkeepDone,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from dibs.maintenance import Done, loops
from dibs.runtime import Loop, Service, Stumbled, end
from dibs.runtime.points import reach
from dibs.scheduler import declare
from dibs.worker.batches import Batches
from dibs.worker.completer import Completer
from dibs.worker.executor import Executor
from dibs.worker.keeper import Keeper
from dibs.worker.pools import Pools
from dibs.worker.processes import Processes, check_importable
from dibs.worker.report import Report
from dibs.worker.shares import Shares
from dibs.worker.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.client.app import App
    from dibs.client.task import Task
    from dibs.job import Claimed
    from dibs.maintenance import Trouble as UpkeepTrouble
    from dibs.runtime import Stepped
    from dibs.worker.settings import Settings

BATCH = 500
AHEAD = 0.2
"""How many seconds of work to have in hand beyond what runs: short jobs fly, long ones are not hoarded."""
WINDOW = 0.1
"""Over how many seconds the rate is measured; over fewer at first, after a pause."""
FAST_POLL = 0.05
"""How many seconds to poll fast after a ring, for commits that overlapped the ringer's."""
TURN = 0.01
"""A runner that never waits gives the others a turn after this many seconds."""
SUSPECT = 2
"""A job lost this often runs alone, so that it takes no other down with it."""
SOLITUDE = 30.0
"""How many seconds a suspect waits for the others to end before it runs beside them."""


class Worker:
    """Runs the tasks of an app until told to stop."""

    def __init__(self, app: App, settings: Settings) -> None:
        self.app = app
        self.settings = settings
        self.ended = 0
        self._events = app.events
        self._pools = Pools(lambda: find_database(app.dsn))
        self._shares = Shares(settings.shares)
        self._stock: deque[Claimed] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._room = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._running: dict[bytes, asyncio.Task[Any]] = {}
        self._batched: set[bytes] = set()
        self._told: dict[bytes, str] = {}
        self._started = False
        self._waking = False
        self._in_hand = 0
        self._careful = False
        self._measure_anew()
        self._claimed_at = time.monotonic()
        self._batches = Batches()

    def stop(self) -> None:
        """Take no more jobs, and end when those that run are done or the grace time is over."""
        self._stop.set()
        self._room.set()
        if self._started:
            self._bell.ring()

    def hurry(self) -> None:
        """Having been told to stop, give back now what still runs."""
        self._hurry.set()

    def trouble(self) -> str | None:
        """What keeps this worker from working at all, if anything does."""
        return "the keeper of leases has ended" if self._started and not self._keeper.is_alive else None

    def unready(self) -> str | None:
        """Why this worker takes no jobs just now, if it does not."""
        if not self._started or self._stop.is_set():
            return "stopping" if self._started else "starting"
        silence = time.monotonic() - self._claimed_at
        if self._in_hand == 0 and silence > 10 * self.settings.poll + 10:
            return f"no claim has succeeded for {silence:.0f} s"
        return None

    async def run(self) -> None:
        """Work until stopped, or until nothing is left to drain."""
        for task in self.app.tasks.values():
            if task.settings.process:
                check_importable(task)
        await self._pools.open()
        self._loop = asyncio.get_running_loop()
        self._keeper = Keeper(self._pools.dsn, self._events, self._stop_job)
        self._completer = Completer(self._pools.outcomes, self._events, self._settle)
        self._bell = AsyncBell(self._pools.dsn)
        names = list(self.settings.shares)
        member = Member(self._pools.registry, self.settings.name, {"queues": names, "upkeep": self.settings.upkeep})
        self._number = await member.register()
        self._holding = Holding(self._pools.registry, member, names, on_lost=self._lost_queues)
        await self._announce()
        await self._holding.hold()
        self._keeper.start()
        self._started = True
        databases = Databases(self._pools.dsn, self.settings.connections)
        threads = Threads(self.settings.threads)
        processes = Processes(self._pools.dsn, self.settings.pool)
        self._executor = Executor(self.app, databases, threads, processes, self._keeper.note)
        completing = asyncio.create_task(self._completer.run(), name="completer")
        steps = {"beat": member.beat, "hold": self._holding.hold, "fence": self._holding.fence}
        beside = [
            asyncio.create_task(Loop(name, step, listener=self._stumbled).run(), name=name)
            for name, step in steps.items()
        ]
        if self.settings.upkeep:
            upkeep = Service(loops(self._pools.upkeep, Leader(self._pools.registry, member), self._told_of_upkeep))
            beside += [asyncio.create_task(upkeep.run(self._stop), name="upkeep")]
        runners = [asyncio.create_task(self._work(), name=f"runner-{n}") for n in range(self.settings.concurrency)]
        self._events.tell(WorkerStarted(self._number, tuple(names)))
        try:
            await self._produce()
            self._events.tell(WorkerStopping(len(self._running)))
            await self._wind_up()
        finally:
            self._stop.set()
            await end([*runners, *beside])
            self._completer.end()
            await completing
            processes.close()
            threads.close()
        self._keeper.close()
        await self._holding.release()
        await self._bell.stop()
        await member.retire()
        await databases.close()
        await self._pools.close()
        self._events.tell(WorkerStopped(self.ended))

    async def _announce(self) -> None:
        """Bring what the code declares to the database: its tasks, their limits, and its schedules."""
        await self._pools.registry.run(calls.set_tasks([task.facts() for task in self.app.tasks.values()]))
        # A worker's role may neither enqueue, which is what a schedule does, nor change limits.
        try:
            await declare(self._pools.registry, self.app.schedules)
            for task in self.app.tasks.values():
                if task.settings.limit is not None:
                    kind = {"queue": None, "kind": task.name, "resource": None}
                    await self._pools.registry.run(calls.set_limit(kind, task.settings.limit, None, None))
        except NotPermitted as error:
            self._events.tell(Trouble("declaring schedules and limits", error))

    def _stumbled(self, fact: Stepped | Stumbled) -> None:
        if isinstance(fact, Stumbled):
            self._events.tell(Trouble(fact.loop, fact.error))

    def _told_of_upkeep(self, fact: Done | UpkeepTrouble) -> None:
        if not isinstance(fact, Done):
            self._events.tell(Trouble(f"upkeep: {fact.chore}", fact.error))
        elif fact.anything:
            self._events.tell(UpkeepDone(fact.chore, sum(fact.counts.values()), dict(fact.counts)))

    # Claiming

    async def _produce(self) -> None:
        await self._bell.start(1.0)
        fast_until = 0.0
        self._measure_anew()
        while not self._stop.is_set():
            wanted = self._wanted()
            room = wanted - self._in_hand
            if room <= 0 or (room < wanted // 4 and self._stock):
                self._room.clear()
                await self._room.wait()
                continue
            queues = self._holding.names()
            heard = self._bell.heard(queues)
            idle = self._in_hand == 0  # before we look: what ends while we look may come back
            # After a suspect one at a time, for it may have brothers; what is not one ends the caution.
            careful, self._careful = self._careful, False
            asked = 1 if careful else min(room, BATCH)
            if found := await self._claim(asked):
                if found < asked:
                    await asyncio.sleep(0)  # Nothing is urgent but what came.
                continue
            if self.settings.drain and idle:
                return
            if time.monotonic() < fast_until:
                if await self._bell.wait(queues, heard, FAST_POLL / 10):
                    fast_until = time.monotonic() + FAST_POLL
                continue
            if await self._wait_for_work(queues, heard):
                fast_until = time.monotonic() + FAST_POLL
            self._measure_anew()

    async def _claim(self, room: int) -> int:
        found = 0
        empty: set[str] = set()
        for asked, most in self._shares.claims(room):
            queues, count = self._holding.of(asked), min(most, room - found)
            if found >= room:
                break
            if not queues or empty.issuperset(asked):
                continue
            began = time.monotonic()
            try:
                jobs = await self._pools.claims.run(calls.claim(queues, count, self._number, None))
            except ShardNotHeld:
                await self._holding.hold()
                return found
            except DibsError as error:
                self._events.tell(Trouble("claiming", error))
                await asyncio.sleep(self.settings.poll)
                return found
            self._claimed_at = time.monotonic()
            if self._events.wants(JobsClaimed):
                self._events.tell(JobsClaimed(tuple(queues), len(jobs), self._claimed_at - began))
            found += len(jobs)
            if len(jobs) < count:
                empty.update(asked)
            self._take(jobs)
            if any(job.losses >= SUSPECT for job in jobs):
                await self._run_alone(next(job for job in jobs if job.losses >= SUSPECT))
                break
        return found

    def _take(self, jobs: list[Claimed]) -> None:
        self._in_hand += len(jobs)
        self._shares.took(jobs)
        self._keeper.take(jobs)
        self._stock.extend(jobs)
        self._wake()
        if jobs:
            reach("worker.claimed")

    def _wake(self) -> None:
        """Wake a runner that has nothing to do, unless one is waking up: it will wake the next, if that is needed.

        Handlers that never wait are then all run by one runner, and the others are not woken for nothing.
        """
        while self._idle and not self._waking:
            future = self._idle.popleft()
            if not future.done():
                future.set_result(None)
                self._waking = True

    def _wanted(self) -> int:
        return self.settings.concurrency + min(int(self._rate * AHEAD), 4 * BATCH)

    async def _wait_for_work(self, queues: list[str], heard: int) -> bool:
        nap = self.settings.poll
        with contextlib.suppress(DibsError):
            due = await self._pools.claims.run(calls.wait_hint(queues))
            nap = nap if due is None else max(0.0, min(nap, due))
        if self.settings.drain:
            nap = min(nap, 0.05)
        return await self._bell.wait(queues, heard, nap)

    async def _run_alone(self, job: Claimed) -> None:
        """Run a job that may kill this process when nothing else of ours can be lost with it."""
        self._stock.remove(job)
        self._give_back_stock()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SOLITUDE):
                await self._until_in_hand(1)
        others = self._in_hand - 1
        self._stock.append(job)
        self._wake()
        await self._until_in_hand(others)
        self._careful = True

    async def _until_in_hand(self, most: int) -> None:
        while self._in_hand > most and not self._stop.is_set():
            self._room.clear()
            await self._room.wait()

    # Running

    async def _work(self) -> None:
        turn = 0.0
        me = asyncio.current_task()
        assert me is not None
        while True:
            if not self._stock:
                future = self._loop.create_future()
                self._idle.append(future)
                await future
                self._waking = False
                turn = time.monotonic() + TURN
                continue
            job = self._stock.popleft()
            if self._stock:
                self._wake()
            if self._told and job.key in self._told:
                self._finish(job, self._told.pop(job.key))
                continue
            task = self._executor.task(job.kind)
            if task is None:
                self._report([self._executor.unknown(job)])
            else:
                await self._run(job, task, me)
            if time.monotonic() > turn:
                await asyncio.sleep(0)
                turn = time.monotonic() + TURN

    async def _run(self, job: Claimed, task: Task[Any, Any], me: asyncio.Task[Any]) -> None:
        if task.settings.batch is not None and self._batches.join(task, job):
            return  # Whoever opened the batch runs it.
        jobs = [job]
        self._running[job.key] = me
        self._quiet.clear()
        try:
            if task.settings.batch is None:
                reports = [await self._executor.attempt(task, job)]
            else:
                await self._batches.gather(task, jobs)
                self._begin_batch(jobs, me)
                reports = await self._executor.attempt_batch(task, jobs)
        except asyncio.CancelledError:
            if not any(one.key in self._told for one in jobs):
                raise
            me.uncancel()
            for one in jobs:
                self._finish(one, self._told.pop(one.key, "stopping"))
        else:
            self._report(reports)
        # Only now: whoever waits for quiet ends us next.
        for one in jobs:
            self._running.pop(one.key, None)
            if self._batched:
                self._batched.discard(one.key)
        if not self._running:
            self._quiet.set()

    def _begin_batch(self, jobs: list[Claimed], me: asyncio.Task[Any]) -> None:
        for job in [job for job in jobs if job.key in self._told]:
            jobs.remove(job)
            self._running.pop(job.key, None)
            self._finish(job, self._told.pop(job.key))
        for job in jobs:
            self._running[job.key] = me
            self._batched.add(job.key)

    def _report(self, reports: list[Report]) -> None:
        for report in reports:
            key = report.job.key
            if self._told:
                self._told.pop(key, None)
            self._keeper.let_go(key)
            self._completer.add(report)

    def _finish(self, job: Claimed, told: str) -> None:
        """End a job that was told to stop: what is lost is no longer ours to report."""
        if told == "lost":
            self._keeper.let_go(job.key)
            self._events.tell(RunLost(job))
            self._settle([Report(job, "none")])
        elif told == "cancel":
            self._report([Report(job, "fail", error="cancelled", final=True)])
        else:
            self._report([Report(job, "release")])

    def _stop_job(self, job: Claimed, why: str) -> None:
        """From the keeper's thread: a job is to stop."""
        self._loop.call_soon_threadsafe(self._cancel, job.key, why)

    def _lost_queues(self, names: frozenset[str]) -> None:
        """Stop the jobs of what another worker is about to pull from."""
        for job in self._keeper.of_queues(names):
            self._cancel(job.key, "lost")

    def _cancel(self, key: bytes, why: str) -> None:
        if key in self._told or not self._keeper.holds(key):
            return
        self._told[key] = why
        # One job of a batch does not stop the others; what the handler says of it is refused if it is no longer ours.
        if key in self._running and (why == "stopping" or key not in self._batched):
            self._running[key].cancel()

    def _settle(self, reports: Sequence[Report]) -> None:
        self._in_hand -= len(reports)
        self.ended += len(reports)
        self._shares.let_go(reports)
        self._measure(max(report.ran for report in reports))
        self._room.set()

    def _measure_anew(self) -> None:
        """After a pause: what comes next may be of another sort, and is not taken ahead before it is known."""
        self._rate = 0.0
        self._counted = (time.monotonic(), self.ended)
        self._window = WINDOW / 20

    def _measure(self, ran: float) -> None:
        """Learn how many jobs a second end here, over no less time than one of them takes."""
        since, then = self._counted
        passed = time.monotonic() - since
        if passed >= max(self._window, ran):
            self._rate = 0.5 * self._rate + 0.5 * (self.ended - then) / passed
            self._counted = (time.monotonic(), self.ended)
            self._window = min(2 * self._window, WINDOW)

    # Stopping

    def _give_back_stock(self) -> None:
        while self._stock:
            self._report([Report(self._stock.popleft(), "release")])

    async def _wind_up(self) -> None:
        """Give back what has not begun, let the rest finish within the grace time, and give back what did not."""
        reach("worker.stopping")
        self._give_back_stock()
        quiet, hurry = asyncio.create_task(self._quiet.wait()), asyncio.create_task(self._hurry.wait())
        await asyncio.wait({quiet, hurry}, timeout=self.settings.grace, return_when=asyncio.FIRST_COMPLETED)
        await end([quiet, hurry])
        for key in list(self._running):
            self._cancel(key, "stopping")
        await self._quiet.wait()
