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
    from dibs.worker.in_flight import InFlight
    from dibs.worker.runners import Runners
    from dibs.worker.source import RingsBefore, Source
    from dibs.worker_settings import WorkerSettings

CLAIM_LIMIT = 500
"""The most jobs that one round of claims takes."""
AHEAD = 0.2
"""Seconds of work to prefetch beyond the slots: short jobs never run out, and long ones are not hoarded."""
MOST_AHEAD = 2000
"""The most jobs to prefetch, however short they are."""
SUSPECT = 2
"""A job that was lost this often may be killing its workers. It runs alone, so that no other is lost with it."""
SOLITUDE = 30.0
"""Seconds that a suspect waits for the other jobs to end. Then it runs beside them."""
DRAIN_POLL = 0.05
"""The longest wait, in seconds, before a worker that drains looks again."""


class Producer:
    """Keeps the runners supplied until told to stop."""

    def __init__(
        self, settings: WorkerSettings, source: Source, in_flight: InFlight, runners: Runners, stop: asyncio.Event
    ) -> None:
        self._settings = settings
        self._source = source
        self._in_flight = in_flight
        self._runners = runners
        self._stop = stop
        self._claim_limit = CLAIM_LIMIT  # 1 after a suspect; doubled with each round up to CLAIM_LIMIT.
        self._fast_polls: Iterator[float] = iter(())

    def wake(self) -> None:
        """End any wait, to see that it is time to stop."""
        self._in_flight.wake()
        self._source.wake()

    def trouble(self) -> str | None:
        """Describe for how long no claim has succeeded, if that is too long for a worker that has no jobs."""
        silence = self._source.since_claim
        if self._in_flight.count == 0 and silence > 10 * self._settings.poll + 10:
            return f"no claim has succeeded for {silence:.0f} s"
        return None

    async def run(self) -> None:
        """Claim until stopped, or until nothing is left to drain."""
        await self._source.listen()
        self._in_flight.pace.restart()
        while not self._stop.is_set():
            room = self._room()
            if room == 0:
                await self._in_flight.wait_for_end()
                continue
            before = self._source.rings_before()
            was_idle = self._in_flight.count == 0  # Before the claim: a job that ends during it may be retried.
            found = await self._claim_round(room)
            if found:
                continue
            was_empty = found == 0  # And no claim failed, after which there may be jobs.
            if self._settings.drain and was_idle and was_empty:
                unparked = await self._source.unpark(room)
                if unparked == 0:
                    return
            await self._wait(before, room)

    def _wanted(self) -> int:
        """The number of jobs to have in flight."""
        return self._settings.slots + min(int(self._in_flight.pace.rate * AHEAD), MOST_AHEAD)

    def _room(self) -> int:
        """The number of jobs to claim; 0 while jobs are buffered and a claim would bring too few."""
        wanted = self._wanted()
        room = wanted - self._in_flight.count
        return 0 if room <= 0 or (room < wanted // 4 and self._runners.has_buffered) else room

    async def _claim_round(self, room: int) -> int | None:
        """Claim up to ``room`` jobs. Return how many were found; None if none were, because a claim failed."""
        count = min(room, self._claim_limit)
        self._claim_limit = min(2 * self._claim_limit, CLAIM_LIMIT)  # Before the claim: a suspect in it sets 1.
        found = await self._claim(count)
        if found and found < count:
            await asyncio.sleep(0)  # Let these jobs begin before the next claim.
        return found

    async def _claim(self, room: int) -> int | None:
        found = 0
        empty: set[str] = set()
        for queues, most in self._in_flight.shares.claims(room):
            if found >= room:
                break
            if empty.issuperset(queues):
                continue
            count = min(most, room - found)
            claimed_after = time.monotonic()
            jobs = await self._source.claim(queues, count)
            if jobs is None:
                return found or None
            found += len(jobs)
            if len(jobs) < count:
                empty.update(queues)
            self._in_flight.add(jobs)
            # No await from here to `set_aside`, or a runner would begin a suspect.
            accepted = self._runners.take(jobs, claimed_after)
            if suspects := [job for job in accepted if job.losses >= SUSPECT]:
                await self._run_alone(*suspects)
                break
        return found

    async def _run_alone(self, suspect: Claimed, *others: Claimed) -> None:
        """Run a job that may kill this process while no other job can be lost with it.

        Other suspects are given back: one more loss could be their last. Suspects come in groups, so the next rounds
        claim one job, then two, four and so on, and soon meet one suspect at a time.
        """
        self._claim_limit = 1
        self._runners.set_aside(suspect, others)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SOLITUDE):
                await self._until_at_most(1)
        if self._stop.is_set():
            return  # The suspect is given back with the jobs that have not begun.
        others_in_flight = self._in_flight.count - 1
        self._runners.put_back()
        # Wait until one job has ended: the suspect, or after SOLITUDE perhaps one of the others beside it.
        await self._until_at_most(others_in_flight)

    async def _until_at_most(self, count: int) -> None:
        """Wait until at most ``count`` jobs are in flight."""
        while self._in_flight.count > count and not self._stop.is_set():
            await self._in_flight.wait_for_end()

    async def _wait(self, before: RingsBefore, room: int) -> None:
        """Wait for the next ring or poll; after a ring poll fast a few times, as FAST_POLLS explains."""
        if seconds := next(self._fast_polls, None):
            is_rung = await self._source.wait(before, seconds)
        else:
            seconds = await self._source.unpark_or_due_in(before.queues, room)
            is_rung = await self._source.wait(before, min(seconds, DRAIN_POLL) if self._settings.drain else seconds)
            self._in_flight.pace.restart()
        if is_rung:
            self._fast_polls = iter(FAST_POLLS)
