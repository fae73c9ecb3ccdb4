"""The demo from its first job to its last."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from dibs.cli.commands.demo.shop import BY_NAME, IMAGES, POLICY, QUEUES, Mishap, make_app, make_jobs
from dibs.db import calls
from dibs.errors import DibsError
from dibs.events import JobStarted, RunEnded
from dibs.states import DEAD, State

if TYPE_CHECKING:
    from uuid import UUID

    from dibs.cli.commands.demo.tally import Tally
    from dibs.client.client_async import AsyncClient

SLOTS = 6
LONGEST, AIM = 0.12, 6.0
"""Seconds that a job takes at most, and that all of them take together."""
POLL = 0.1
"""Seconds between two readings of the states."""
LIMIT = 120.0
"""A demo that takes longer than this many seconds has gone wrong."""


class Story:
    """Enqueues jobs, works on them, loses a worker, cancels, expires and retries; the tally keeps the events."""

    def __init__(self, client: AsyncClient, tally: Tally) -> None:
        self._client = client
        self._tally = tally
        self.kinds: dict[UUID, str] = {}

    async def play(self, dsn: str) -> dict[UUID, tuple[str, State]]:
        """Play all of it. Return the kind and the last state of each job."""
        app = make_app(dsn, min(LONGEST, AIM * SLOTS / self._tally.total))
        app.events.on(JobStarted, self._started)
        app.events.on(RunEnded, self._tally.run_ended)
        await self._enqueue()
        await self._lose_a_worker()
        try:
            async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
                working = group.create_task(app.arun_worker(slots=SLOTS, grace=1.0, name="demo"))
                self._tally.note("phase", "a worker calls dibs on them")
                for id in self._of(Mishap.UNWANTED):
                    await self._client.cancel(id, "no longer wanted")
                    self._tally.note("cancelled", f"{self.kinds[id]}: cancelled before it ran")
                await self._all_ended()
                await self._retry()
                ended = await self._all_ended()
                working.cancel()
        except TimeoutError:
            raise DibsError(f"the demo did not end in {LIMIT:.0f} s", hint=f"{dict(self._tally.states)}") from None
        finally:
            await app.aclose()
        return ended

    async def _enqueue(self) -> None:
        for queue in QUEUES:
            await self._client.queues.set(queue, **POLICY)
        self._tally.note("phase", f"{self._tally.total} jobs go in, in one statement")
        jobs = make_jobs(self._tally.total, await self._client.now())
        made = await self._client.enqueue_many(jobs)
        self.kinds = {m.id: job.kind for m, job in zip(made, jobs, strict=True)}
        self._tally.note("enqueued", f"{len(made)} jobs enqueued", count=len(made))

    def _of(self, mishap: Mishap) -> list[UUID]:
        return [id for id, kind in self.kinds.items() if BY_NAME[kind].mishap is mishap]

    async def _lose_a_worker(self) -> None:
        secret, _ = await self._client._run(calls.workers.register_worker("demo, soon to vanish", {}))
        [wanted] = self._of(Mishap.CRASH)
        # It has the highest priority of its queue. An interrupted demo may have left others, which come first.
        while True:
            claimed = await self._client.claim(IMAGES, worker=secret, lease=1.5)
            if not claimed:
                raise DibsError("another worker takes the jobs of the demo", hint="stop it, or use another database")
            [job] = claimed
            if job.id == wanted:
                break
            await self._client.complete(job)
        self._tally.note("crash", f"a worker vanishes with a {job.kind} job")
        await self._client._run(calls.workers.retire_worker(secret))

    def _started(self, event: JobStarted) -> None:
        if BY_NAME[event.job.kind].mishap is Mishap.CRASH:
            self._tally.note("lost", f"{event.job.kind}: the lease of its worker ran out; rescued")

    async def _retry(self) -> None:
        dead = [id for id, (_, state) in (await self._look()).items() if state in DEAD - {State.CANCELLED}]
        self._tally.note("phase", f"the causes are repaired; {len(dead)} dead jobs are brought back")
        back = (await self._client.retry({"ids": dead})).done
        self._tally.note("brought_back", f"{back} jobs brought back from the dead", count=back)

    async def _all_ended(self) -> dict[UUID, tuple[str, State]]:
        while True:
            if expired := await self._client.upkeep.expire():
                self._tally.note("expired", f"remind: past its deadline; {expired} expired", count=expired)
            found = await self._look()
            if self._tally.ended == len(found):
                return found
            await asyncio.sleep(POLL)

    async def _look(self) -> dict[UUID, tuple[str, State]]:
        states = [status.state for status in await self._client.status_many(list(self.kinds))]
        self._tally.states = Counter(states)
        return {id: (kind, state) for (id, kind), state in zip(self.kinds.items(), states, strict=True)}
