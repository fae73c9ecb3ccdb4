"""Counts what has ended into the statistics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dibs.db import calls
from dibs.maintenance.chore import ChoreDone
from dibs.runtime.rest import rest_after

if TYPE_CHECKING:
    from dibs.db.database_async import AsyncDatabase

EVERY = 10.0


async def roll_up(database: AsyncDatabase) -> ChoreDone:
    """Count all there is; the longer it took, the later again."""
    began = time.monotonic()
    counted, more = await database.run(calls.statistics.roll_up())
    while more:
        again, more = await database.run(calls.statistics.roll_up())
        counted += again
    return ChoreDone("roll_up", max(EVERY, rest_after(time.monotonic() - began)), {"counted": counted})
