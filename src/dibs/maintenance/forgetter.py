"""Deletes old hints of where to scan, and workers that were not seen for days."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.db import calls
from dibs.maintenance.chore import ChoreDone

if TYPE_CHECKING:
    from dibs.db.database_async import AsyncDatabase

EVERY = 60.0


async def forget(database: AsyncDatabase) -> ChoreDone:
    """Delete them; counts the rows."""
    return ChoreDone("forget", EVERY, {"forgotten": await database.run(calls.upkeep.forget())})
