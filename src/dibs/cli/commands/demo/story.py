"""The demo from its first job to its last."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from dibs.cli.commands.demo.plan import BY_NAME, IMAGES, POLICY, QUEUES, Mishap, make_jobs
from dibs.cli.commands.demo.worker import DemoWorker
from dibs.db import calls
from dibs.errors import DibsError
from dibs.runtime.wake import wait_for
from dibs.states import DEAD, State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

    from dibs.cli.commands.demo.tally import Tally
    from dibs.client.client_async import AsyncClient

LOOK = 0.1
"""How often the counts are read, in seconds."""
LIMIT = 120.0
"""A demo that takes longer has gone wrong."""


class Story:
    """Enqueues, works, loses a worker, cancels, expires, brings the dead back; the tally keeps what happened."""

    def __init__(self, client: AsyncClient, tally: Tally) -> None:
        self._client = client
        self._tally = tally
        self.kinds: dict[UUID, str] = {}

    async def play(self, count: int) -> None:
        """Play all of it."""
        for queue in QUEUES:
            await self._client.queues.set(queue, **POLICY)
        self._tally.begin(count)
        self._tally.enter(f"{count} jobs go in, in one statement")
        await self._enqueue(count)
        await self._lose_a_worker()
        secret, _ = await self._client._run(calls.workers.register_worker("demo", {}))
        worker = DemoWorker(self._client, self._tally, secret)
        try:
            async with asyncio.timeout(LIMIT), self._working(worker):
                self._tally.enter("a worker calls dibs on them")
                await self._cancel()
                await self._all_ended()
                await self._bring_back(worker)
                await self._all_ended()
        except TimeoutError:
            raise DibsError(f"the demo did not end in {LIMIT:.0f} s", hint=f"{dict(self._tally.states)}") from None
        finally:
            await self._client._run(calls.workers.retire_worker(secret))

    async def _enqueue(self, count: int) -> None:
        now = await self._client._run(calls.schema.now())
        jobs = make_jobs(count, now)
        made = await self._client.enqueue_many(jobs)
        self.kinds = {m.id: job.kind for m, job in zip(made, jobs, strict=True)}
        self._tally.note("enqueued", f"{len(made)} jobs enqueued", count=len(made))

    def _of(self, mishap: Mishap) -> list[UUID]:
        return [id for id, kind in self.kinds.items() if BY_NAME[kind].mishap is mishap]

    async def _lose_a_worker(self) -> None:
        secret, _ = await self._client._run(calls.workers.register_worker("demo, soon to vanish", {}))
        [wanted] = self._of(Mishap.CRASH)
        # It has the highest priority of its queue; what comes before it was left by a demo that was interrupted.
        while (job := (await self._client.claim(IMAGES, worker=secret, lease=1.5))[0]).id != wanted:
            await self._client.complete(job)
        self._tally.note("crash", f"a worker vanishes with a {job.kind} job", job.id)
        await self._client._run(calls.workers.retire_worker(secret))

    async def _cancel(self) -> None:
        for id in self._of(Mishap.UNWANTED):
            await self._client.cancel(id, "no longer wanted")
            self._tally.note("cancelled", f"{self.kinds[id]}: cancelled before it ran", id)

    async def _bring_back(self, worker: DemoWorker) -> None:
        worker.repaired = True
        states = [s.state for s in await self._client.status_many(list(self.kinds))]
        ids = [id for id, state in zip(self.kinds, states, strict=True) if state in DEAD - {State.CANCELLED}]
        self._tally.enter(f"the causes are repaired; {len(ids)} dead jobs are brought back")
        back = (await self._client.retry({"ids": ids})).done
        self._tally.note("brought_back", f"{back} jobs brought back from the dead", count=back)
        await self.look()

    @asynccontextmanager
    async def _working(self, worker: DemoWorker) -> AsyncIterator[None]:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(worker.run(stop))
            group.create_task(self._upkeep(stop))
            try:
                yield
            finally:
                stop.set()

    async def _upkeep(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            expired = await self._client.upkeep.expire()
            if expired:
                self._tally.note("expired", f"remind: past its deadline; {expired} expired", count=expired)
            await self._client.upkeep.rescue()
            await wait_for(stop, 0.2)

    async def _all_ended(self) -> None:
        while await self.look() < len(self.kinds):  # noqa: ASYNC110 - the database announces no end
            await asyncio.sleep(LOOK)

    async def look(self) -> int:
        """Count the states; how many jobs are over."""
        self._tally.states = Counter(
            s.value for s in [s.state for s in await self._client.status_many(list(self.kinds))]
        )
        return self._tally.ended
