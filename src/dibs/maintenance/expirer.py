"""Ends waiting jobs that are past their TTL or deadline."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from uuid import UUID

from dibs.db import calls
from dibs.maintenance.chore import ChoreDone
from dibs.runtime.rest import rest_after

if TYPE_CHECKING:
    from dibs.db.database_async import AsyncDatabase

EVERY = 10.0
CHUNK = 10_000


async def expire(database: AsyncDatabase) -> ChoreDone:
    """Walk all waiting jobs, a chunk in each transaction; the longer it took, the later again."""
    began = time.monotonic()
    expired = 0
    after: UUID | None = UUID(int=0)
    while after is not None:
        count, after = await database.run(calls.upkeep.expire(CHUNK, after))
        expired += count
    return ChoreDone("expire", max(EVERY, rest_after(time.monotonic() - began)), {"expired": expired})
