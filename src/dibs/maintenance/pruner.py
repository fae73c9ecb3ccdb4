"""Drops days past retention, and trims what no day takes along."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dibs.db import calls
from dibs.maintenance.chore import ChoreDone

if TYPE_CHECKING:
    from dibs.db.database_async import AsyncDatabase

EVERY = 600.0
SOON = 10.0
AT_ONCE = 0.1
BATCH = 1000


async def prune(database: AsyncDatabase) -> ChoreDone:
    """Drop and trim once; again soon when a day was locked, and almost at once when there may be more to do."""
    counts: Counter[str] = Counter()
    full = False
    for pruned in await database.run(calls.upkeep.prune(BATCH)):
        counts[pruned.outcome] += 1 if pruned.rows is None else pruned.rows
        full = full or (pruned.rows or 0) >= BATCH
    again = AT_ONCE if full or counts["dropped"] else SOON if counts["locked"] else EVERY
    return ChoreDone("prune", again, counts)
