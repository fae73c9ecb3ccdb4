"""The demo's worker: claims, runs and reports, several jobs at a time."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from dibs.cli.commands.demo.plan import BY_NAME, QUEUES, Kind, Mishap

if TYPE_CHECKING:
    from uuid import UUID

    from dibs.cli.commands.demo.tally import Tally
    from dibs.client.client_async import AsyncClient
    from dibs.job import Claimed

AT_ONCE = 6
LONGEST = 0.12
AIM = 6.0
"""About how many seconds the work takes, however many jobs there are."""


class DemoWorker:
    """Runs the demo's jobs; ``repaired`` tells whether the causes of their failures are gone."""

    def __init__(self, client: AsyncClient, tally: Tally, secret: UUID) -> None:
        self.repaired = False
        self._client = client
        self._tally = tally
        self._secret = secret
        self._pace = min(LONGEST, AIM * AT_ONCE / max(tally.total, 1))

    async def run(self, stop: asyncio.Event) -> None:
        """Work until told to stop."""
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._work(stop))

    async def _work(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            for job in await self._client.claim(QUEUES, worker=self._secret, wait=0.3):
                await self._perform(job, BY_NAME[job.kind])

    async def _perform(self, job: Claimed, kind: Kind) -> None:
        if kind.mishap is Mishap.CRASH:
            self._tally.note("lost", f"{job.kind}: the lease of its worker ran out; rescued", job.id)
        if kind.mishap is Mishap.EARLY and job.run == 1:
            await self._client.snooze(job, 0.8)
            self._tally.note("snoozed", f"{job.kind}: no data yet; snoozed", job.id)
            return
        await asyncio.sleep(self._pace * random.uniform(0.4, 1.6))  # noqa: S311
        if self._fails(job, kind):
            await self._fail(job, kind)
        else:
            await self._complete(job)

    def _fails(self, job: Claimed, kind: Kind) -> bool:
        match kind.mishap:
            case Mishap.FLAKY:
                return job.attempt == 1
            case Mishap.FATAL | Mishap.HOPELESS:
                return not self.repaired
            case _:
                return False

    async def _fail(self, job: Claimed, kind: Kind) -> None:
        failed = await self._client.fail(job, kind.error, final=kind.mishap is Mishap.FATAL)
        told = kind.error.partition(": ")[2]
        if failed.due_at is not None:
            self._tally.note("retried", f"{job.kind}: {told}; tries again", job.id)
        elif failed.state == "exhausted":
            self._tally.note("exhausted", f"{job.kind}: {told}; exhausted", job.id)
        else:
            self._tally.note("failed", f"{job.kind}: {told}; failed for good", job.id)

    async def _complete(self, job: Claimed) -> None:
        await self._client.complete(job, {"by": "demo"})
        self._tally.completions[job.id] += 1
        again = f" at attempt {job.attempt}" if job.attempt > 1 else ""
        self._tally.note("succeeded", f"{job.kind} succeeded{again}", job.id)
