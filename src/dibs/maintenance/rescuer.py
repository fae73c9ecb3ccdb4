"""Takes back leases that were not renewed in time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dibs.db import calls
from dibs.maintenance.chore import ChoreDone

if TYPE_CHECKING:
    from dibs.db.database_async import AsyncDatabase

EVERY = 1.0
BATCH = 1000


async def rescue(database: AsyncDatabase) -> ChoreDone:
    """Take them back, a batch at a time; counts where the jobs went."""
    counts: Counter[str] = Counter()
    while True:
        rescued = await database.run(calls.upkeep.rescue(BATCH))
        counts.update(job.state for job in rescued)
        if len(rescued) < BATCH:
            return ChoreDone("rescue", EVERY, counts)
