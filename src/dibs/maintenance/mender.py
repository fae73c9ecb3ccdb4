"""Checks and repairs what groups and limits keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.db import calls
from dibs.maintenance.chore import ChoreDone

if TYPE_CHECKING:
    from dibs.db.database_async import AsyncDatabase

EVERY = 30.0


async def mend(database: AsyncDatabase) -> ChoreDone:
    """Look at all groups and limits; there should be nothing to repair."""
    groups = await database.run(calls.groups.repair_groups())
    return ChoreDone("mend", EVERY, {"groups": groups, "limits": await database.run(calls.limits.repair_limits())})
