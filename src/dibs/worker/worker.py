"""The worker: claims as many jobs as there is room for, runs them, and stops without losing any."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from dibs.client.find import find_database
from dibs.cluster import Member
from dibs.db import calls
from dibs.db.database_async import AsyncDatabase
from dibs.db.listen import AsyncBell
from dibs.errors import DibsError
from dibs.maintenance import maintain
from dibs.worker.completer import Completer
from dibs.worker.executor import Executor
from dibs.worker.keeper import Keeper
from dibs.worker.report import Report

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from dibs.client.app import App
    from dibs.job import Claimed
    from dibs.worker.settings import Settings

log = logging.getLogger("dibs.worker")

BATCH = 500
AHEAD = 0.2
"""How many seconds of work to have in hand beyond what runs: short jobs fly, long ones are not hoarded."""
FAST_POLL = 0.05
TURN = 0.01
"""A runner that never waits gives the others a turn after this many seconds."""


class Worker:
    """Runs the tasks of an app until told to stop."""

    def __init__(self, app: App, settings: Settings) -> None:
        self.app = app
        self.settings = settings
        self.ended = 0
        self._database = AsyncDatabase(lambda: find_database(app.dsn), pool_size=4, patience=30.0)
        self._stock: deque[Claimed] = deque()
        self._running: dict[UUID, asyncio.Task[None]] = {}
        self._told: dict[UUID, str] = {}
        self._in_hand = 0
        self._rate = 0.0
        self._counted = (time.monotonic(), 0)
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._filled = asyncio.Semaphore(0)
        self._room = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()

    def stop(self) -> None:
        """Stop claiming and finish what runs; told a second time, give it back now."""
        if self._stop.is_set():
            log.info("stopping now: %d running jobs are given back", len(self._running))
            self._hurry.set()
        else:
            log.info("stopping: %d running jobs have %g s to finish", len(self._running), self.settings.grace)
        self._stop.set()
        self._room.set()

    async def run(self) -> None:
        """Work until stopped, or until nothing is left if told to drain."""
        await self._database.connect()
        self._loop = asyncio.get_running_loop()
        self._keeper = Keeper(self._database.dsn, self._stop_job)
        self._completer = Completer(self._database, self._settle)
        self._bell = AsyncBell(self._database.dsn)
        member = Member(self._database, self.settings.name, {"queues": self.settings.queues})
        self._number = await member.register()
        self._keeper.start()
        threads = ThreadPoolExecutor(self.settings.threads, "dibs-handler")
        self._executor = Executor(self.app, threads)
        completing = asyncio.create_task(self._completer.run(), name="completer")
        beside = [asyncio.create_task(self._beat(member), name="beat")]
        if self.settings.upkeep:
            beside += [asyncio.create_task(maintain(self._database, until=self._stop), name="upkeep")]
        runners = [asyncio.create_task(self._work(), name=f"runner-{n}") for n in range(self.settings.concurrency)]
        try:
            await self._produce()
            await self._wind_up()
        finally:
            self._stop.set()
            await _end([*runners, *beside])
            self._completer.end()
            await completing
            threads.shutdown(wait=False, cancel_futures=True)
        self._keeper.close()
        await self._bell.stop()
        await member.retire()
        await self._database.close()

    async def _beat(self, member: Member) -> None:
        while True:
            with contextlib.suppress(DibsError):
                await asyncio.sleep(await member.beat())

    # Claiming

    async def _produce(self) -> None:
        await self._bell.start(1.0)
        queues = list(self.settings.queues)
        fast_until = 0.0
        while not self._stop.is_set():
            room = self._wanted() - self._in_hand
            if room < max(1, self._wanted() // 4) and self._stock:
                self._room.clear()
                await self._room.wait()
                continue
            if room <= 0:
                self._room.clear()
                await self._room.wait()
                continue
            heard = self._bell.heard(queues)
            idle = self._in_hand == 0  # before we look: what ends while we look may come back
            if await self._claim(queues, min(room, BATCH)):
                continue
            if self.settings.drain and idle:
                return
            if time.monotonic() < fast_until:
                await asyncio.sleep(0.005)
                continue
            if await self._wait_for_work(queues, heard):
                fast_until = time.monotonic() + FAST_POLL

    async def _claim(self, queues: list[str], count: int) -> int:
        try:
            jobs = await self._database.run(calls.claim(queues, count, self._number, None))
        except DibsError as error:
            log.warning("claiming failed: %s", error)
            await asyncio.sleep(self.settings.poll)
            return 0
        self._in_hand += len(jobs)
        self._keeper.take(jobs)
        self._stock.extend(jobs)
        for _ in jobs:
            self._filled.release()
        return len(jobs)

    def _wanted(self) -> int:
        return self.settings.concurrency + min(int(self._rate * AHEAD), 4 * BATCH)

    async def _wait_for_work(self, queues: list[str], heard: int) -> bool:
        nap = self.settings.poll
        with contextlib.suppress(DibsError):
            due = await self._database.run(calls.wait_hint(queues))
            nap = nap if due is None else max(0.0, min(nap, due))
        if self.settings.drain:
            nap = min(nap, 0.05)
        ring = asyncio.create_task(self._bell.wait(queues, heard, nap))
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait({ring, stopped}, return_when=asyncio.FIRST_COMPLETED)
        rang = ring.done() and not ring.cancelled() and ring.result()
        await _end([ring, stopped])
        return rang

    # Running

    async def _work(self) -> None:
        turn = time.monotonic() + TURN
        while True:
            await self._filled.acquire()
            if not self._stock:
                continue
            job = self._stock.popleft()
            if job.id in self._told:
                self._finish(job, self._told.pop(job.id))
                continue
            await self._run_one(job)
            if time.monotonic() > turn:
                await asyncio.sleep(0)
                turn = time.monotonic() + TURN

    async def _run_one(self, job: Claimed) -> None:
        me = asyncio.current_task()
        assert me is not None
        self._running[job.id] = me
        self._quiet.clear()
        try:
            report = await self._executor.attempt(job)
        except asyncio.CancelledError:
            told = self._told.pop(job.id, None)
            if told is None:
                raise
            me.uncancel()
            self._finish(job, told)
        else:
            self._keeper.let_go(job.id)
            self._completer.add(report)
        # Only now: whoever waits for quiet ends us next.
        del self._running[job.id]
        if not self._running:
            self._quiet.set()

    def _finish(self, job: Claimed, told: str) -> None:
        """End a job that was told to stop: what is lost is no longer ours to report."""
        self._keeper.let_go(job.id)
        if told == "lost":
            self._settle(1)
        elif told == "cancel":
            self._completer.add(Report(job, "fail", error="cancelled", final=True))
        else:
            self._completer.add(Report(job, "release"))

    def _stop_job(self, id: UUID, why: str) -> None:
        """From the keeper's thread: a job is to stop."""
        self._loop.call_soon_threadsafe(self._cancel, id, why)

    def _cancel(self, id: UUID, why: str) -> None:
        if id in self._told or not self._keeper.holds(id):
            return
        self._told[id] = why
        if id in self._running:
            self._running[id].cancel()

    def _settle(self, count: int) -> None:
        self._in_hand -= count
        self.ended += count
        since, then = self._counted
        passed = time.monotonic() - since
        if passed >= 0.1:
            self._rate = 0.5 * self._rate + 0.5 * (self.ended - then) / passed
            self._counted = (time.monotonic(), self.ended)
        self._room.set()

    # Stopping

    async def _wind_up(self) -> None:
        """Give back what has not begun, let the rest finish within the grace time, and give back what did not."""
        while self._stock:
            job = self._stock.popleft()
            self._keeper.let_go(job.id)
            self._completer.add(Report(job, "release"))
        quiet, hurry = asyncio.create_task(self._quiet.wait()), asyncio.create_task(self._hurry.wait())
        await asyncio.wait({quiet, hurry}, timeout=self.settings.grace, return_when=asyncio.FIRST_COMPLETED)
        await _end([quiet, hurry])
        for id in list(self._running):
            self._cancel(id, "stopping")
        await self._quiet.wait()


async def _end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
