"""Makes the days of job and attempt ahead of time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dibs.db import calls
from dibs.maintenance.chore import ChoreDone

if TYPE_CHECKING:
    from dibs.db.database_async import AsyncDatabase

EVERY = 3600.0
SOON = 30.0
AHEAD = 7


async def make_days(database: AsyncDatabase) -> ChoreDone:
    """Make the missing days; again soon when a lock stood in the way of one, or when there may be more."""
    days = await database.run(calls.upkeep.make_days(AHEAD))
    counts = Counter(day.outcome for day in days if day.outcome != "exists")
    again = SOON if counts["locked"] or counts["made"] else EVERY
    return ChoreDone("make_days", again, counts)
