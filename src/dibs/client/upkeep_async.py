"""``client.upkeep``: the upkeep by hand, and the holds of shards. Workers do both by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from dibs.db import calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.db.database_async import AsyncDatabase
    from dibs.info import MadeDay, Pruned, Rescued
    from dibs.shards import Hold


class AsyncUpkeep:
    """The upkeep by hand, and the holds of shards; reached as ``client.upkeep``. Workers do both by themselves."""

    def __init__(self, database: AsyncDatabase) -> None:
        self._database = database

    async def rescue(self, max: int = 1000) -> list[Rescued]:
        """Take back leases that were not renewed in time. Return each job and its state now."""
        return await self._database.run(calls.upkeep.rescue(max))

    async def expire(self) -> int:
        """End every waiting job past its TTL or deadline. Return how many there were."""
        expired = 0
        after: UUID | None = UUID(int=0)
        while after is not None:
            count, after = await self._database.run(calls.upkeep.expire(10_000, after))
            expired += count
        return expired

    async def forget(self) -> int:
        """Delete hints and workers that are no longer needed. Return the number of rows."""
        return await self._database.run(calls.upkeep.forget())

    async def make_days(self, ahead: int = 7) -> list[MadeDay]:
        """Make the days' partitions ahead of time. Return the name and outcome of each."""
        return await self._database.run(calls.upkeep.make_days(ahead))

    async def prune(self, max: int = 1000) -> list[Pruned]:
        """Drop days past retention. Return the name, outcome and rows of each."""
        return await self._database.run(calls.upkeep.prune(max))

    async def roll_up(self) -> int | None:
        """Bring the statistics up to date. Return how many runs were counted, or None if another process is doing so.

        The upkeep does so every few seconds.
        """
        counted, more = await self._database.run(calls.statistics.roll_up())
        while more and counted is not None:
            again, more = await self._database.run(calls.statistics.roll_up())
            counted += again or 0
        return counted

    async def repair_groups(self) -> int:
        """Repair groups after the database's clock was set back. Return how many needed it."""
        return await self._database.run(calls.groups.repair_groups())

    async def repair_jobs(self) -> int:
        """Repair the jobs that the doctor reports as lost jobs and gone queues. Return how many wait again.

        It is 0 unless something went wrong.
        """
        restored, after = 0, None
        while True:
            step, after = await self._database.run(calls.upkeep.repair_jobs(after))
            restored += step
            if after is None:
                return restored

    async def repair_limits(self) -> int:
        """Repair limits that lack units. Return how many did."""
        return await self._database.run(calls.limits.repair_limits())

    async def hold_shards(self, worker: UUID, queues: str | Sequence[str]) -> list[Hold]:
        """Take, renew and rebalance a worker's holds of exclusive queues and shards. Return its claimable names."""
        names = [queues] if isinstance(queues, str) else queues
        return await self._database.run(calls.shards.hold_shards(worker, names))

    async def release_shards(self, worker: UUID, queues: str | Sequence[str] | None = None) -> int:
        """Release a worker's holds, of these queues or of all. Return the number of shards released."""
        names = [queues] if isinstance(queues, str) else queues
        return await self._database.run(calls.shards.release_shards(worker, names))
