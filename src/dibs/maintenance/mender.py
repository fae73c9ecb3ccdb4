"""Sees that groups have their turns and limits their units."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from dibs.db import calls
from dibs.maintenance.chore import ChoreDone

if TYPE_CHECKING:
    from dibs.db.database_async import AsyncDatabase

EVERY = 30.0
CHUNK = 10_000


async def mend(database: AsyncDatabase) -> ChoreDone:
    """Walk all groups, a chunk in each transaction, and look at every limit; there should be nothing to mend."""
    groups = 0
    after: UUID | None = UUID(int=0)
    while after is not None:
        count, after = await database.run(calls.groups.repair_groups(CHUNK, after))
        groups += count
    return ChoreDone("mend", EVERY, {"groups": groups, "limits": await database.run(calls.limits.repair_limits())})
