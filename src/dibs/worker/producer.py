"""Claims as many jobs as there is room for, and hands them to the runners."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from dibs.runtime.wake import FAST_POLLS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dibs.job import Claimed
    from dibs.worker.hand import Hand
    from dibs.worker.runners import Runners
    from dibs.worker.source import Mark, Source
    from dibs.worker_settings import WorkerSettings

BATCH = 500
AHEAD = 0.2
"""How many seconds of work to claim beyond what runs: short jobs never run out, long ones are not hoarded."""
SUSPECT = 2
"""A job lost this often runs alone, so that it takes no other down with it."""
SOLITUDE = 30.0
"""How many seconds a suspect waits for the others to end before it runs beside them."""


class Producer:
    """Keeps the runners supplied until told to stop."""

    def __init__(
        self, settings: WorkerSettings, source: Source, hand: Hand, runners: Runners, stop: asyncio.Event
    ) -> None:
        self._settings = settings
        self._source = source
        self._hand = hand
        self._runners = runners
        self._stop = stop
        self._trust = BATCH
        self._fast: Iterator[float] = iter(())

    def wake(self) -> None:
        """Look now whether to stop."""
        self._hand.wake()
        self._source.wake()

    def silent(self) -> str | None:
        """Why we believe that claims do not succeed, if we do."""
        silence = self._source.silence
        if self._hand.count == 0 and silence > 10 * self._settings.poll + 10:
            return f"no claim has succeeded for {silence:.0f} s"
        return None

    async def run(self) -> None:
        """Claim until stopped, or until nothing is left to drain."""
        await self._source.listen()
        self._hand.pace.restart()
        while not self._stop.is_set():
            room = self._room()
            if room == 0:
                await self._hand.change()
                continue
            mark = self._source.mark()
            idle = self._hand.count == 0  # before we look: what ends while we look may come back
            if not await self._fill(room):
                if self._settings.drain and idle and not await self._source.unpark(room):
                    return
                await self._wait(mark, room)

    def _wanted(self) -> int:
        return self._settings.slots + min(int(self._hand.pace.rate * AHEAD), 4 * BATCH)

    def _room(self) -> int:
        """How many jobs to claim: none while there is stock and it is not worth a claim."""
        wanted = self._wanted()
        room = wanted - self._hand.count
        return 0 if room <= 0 or (room < wanted // 4 and self._runners.has_stock) else room

    async def _fill(self, room: int) -> bool:
        """Claim; whether anything was found."""
        asked = min(room, self._trust)
        self._trust = min(2 * self._trust, BATCH)
        found = await self._claim(asked)
        if 0 < found < asked:
            await asyncio.sleep(0)  # Let what came begin before we ask again.
        return found > 0

    async def _claim(self, room: int) -> int:
        found = 0
        empty: set[str] = set()
        for queues, most in self._hand.shares.claims(room):
            if found >= room:
                break
            if empty.issuperset(queues):
                continue
            count = min(most, room - found)
            asked = time.monotonic()
            jobs = await self._source.claim(queues, count)
            if jobs is None:
                break
            found += len(jobs)
            if len(jobs) < count:
                empty.update(queues)
            self._hand.take(jobs)
            kept = self._runners.take(jobs, asked)
            if suspects := [job for job in kept if job.losses >= SUSPECT]:
                await self._run_alone(*suspects)
                break
        return found

    async def _run_alone(self, job: Claimed, *others: Claimed) -> None:
        """Run a job that may kill this process when nothing else of ours can be lost with it.

        Other suspects are given back: they would be lost with it, for the last time perhaps. Suspects come in groups,
        so we claim one job at a time after this, then two, four and so on, and soon meet one suspect at a time.
        """
        self._trust = 1
        self._runners.set_aside(job, others)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SOLITUDE):
                await self._until_in_hand(1)
        running = self._hand.count - 1
        self._runners.put_back(job)
        await self._until_in_hand(running)

    async def _until_in_hand(self, most: int) -> None:
        while self._hand.count > most and not self._stop.is_set():
            await self._hand.change()

    async def _wait(self, mark: Mark, room: int) -> None:
        """Wait for work: fast after a ring, otherwise until the next ring or poll."""
        if soon := next(self._fast, None):
            rung = await self._source.wait(mark, soon)
        else:
            nap = await self._source.due_in(mark, room)
            rung = await self._source.wait(mark, min(nap, 0.05) if self._settings.drain else nap)
            self._hand.pace.restart()
        if rung:
            self._fast = iter(FAST_POLLS)
