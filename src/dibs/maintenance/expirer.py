"""Ends waiting jobs that are past their TTL or deadline."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from uuid import UUID

from dibs.db import calls
from dibs.maintenance.chore import ChoreDone

if TYPE_CHECKING:
    from dibs.db.database_async import AsyncDatabase

EVERY = 10.0
REST = 20
"""After a walk this many times as long passes without one: a long backlog costs a twentieth of a core at most."""
CHUNK = 10_000


async def expire(database: AsyncDatabase) -> ChoreDone:
    """Walk all waiting jobs, a chunk in each transaction."""
    began = time.monotonic()
    expired = 0
    after: UUID | None = UUID(int=0)
    while after is not None:
        count, after = await database.run(calls.upkeep.expire(CHUNK, after))
        expired += count
    return ChoreDone("expire", max(EVERY, REST * (time.monotonic() - began)), {"expired": expired})
