"""Makes the jobs of the slots that have come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.maintenance.chore import ChoreDone
from dibs.scheduler import tick

if TYPE_CHECKING:
    from dibs.db.database_async import AsyncDatabase


async def schedule(database: AsyncDatabase) -> ChoreDone:
    """One round of all schedules; again when the next slot comes, and at least each second while there are any."""
    ticked = await tick(database)
    return ChoreDone("schedule", ticked.again, ticked.counts)
