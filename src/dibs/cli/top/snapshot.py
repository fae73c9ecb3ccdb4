"""A snapshot of the database: everything that the page shows, read at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dibs.states import DEAD

if TYPE_CHECKING:
    from datetime import datetime

    from dibs.client.client_async import AsyncClient
    from dibs.info import Depth, JobSummary, RunningJob, WorkerInfo

SPAN = 120.0
"""Seconds over which rates are computed. Statistics are a few seconds late."""
MOST = 200
"""The number of rows that are read of a list."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Runs of a queue that ended well and badly, per second."""

    succeeded: float = 0.0
    failed: float = 0.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of queues, runs, workers and dead jobs."""

    at: datetime
    depths: list[Depth]
    rates: dict[str, Rate]
    running: list[RunningJob]
    workers: list[WorkerInfo]
    dead: list[JobSummary]


async def read_snapshot(client: AsyncClient) -> Snapshot:
    """Read a snapshot."""
    at, depths, rates, running, workers, found = await asyncio.gather(
        client.now(),
        client.queues.depths(),
        _rates(client),
        client.workers.running(limit=MOST),
        client.workers.list(),
        client.find_jobs({"states": sorted(DEAD)}, limit=MOST),
    )
    return Snapshot(at, depths, rates, running, workers, found.jobs)


async def _rates(client: AsyncClient) -> dict[str, Rate]:
    # Statistics count whole minutes, also the one in which `since` lies: this one and the minute before it.
    found = await client.stats.statistics(by="queue", since=SPAN - 60)
    return {s.queue: Rate(s.succeeded / SPAN, (s.failed + s.lost) / SPAN) for s in found if s.queue is not None}
