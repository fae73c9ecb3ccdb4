"""The connections of a worker: each for one purpose, so that none waits for another and all stay warm."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dibs.db.database_async import AsyncDatabase
from dibs.runtime import limited

if TYPE_CHECKING:
    from collections.abc import Callable

SENDING = 15.0
"""For how many seconds to try to send outcomes: less than most leases last, so that another connection is tried."""
CLOSING = 2.0
"""How many seconds there are to close all connections."""


class Pools:
    """A connection to claim with, one for outcomes, one for the registry, and two for upkeep; opened when used.

    A session keeps its own plans and floors: two that took turns would each know half as much.
    """

    def __init__(self, locate: str | Callable[[], str]) -> None:
        self.registry = AsyncDatabase(locate, pool_size=1)

    async def locate(self) -> None:
        """Find out where the database is, which may have to be started first."""
        await asyncio.to_thread(lambda: self.dsn)

    async def open(self) -> None:
        """Connect."""
        await self.registry.connect()
        self.claims = self.registry.another(pool_size=1)
        self.outcomes = self.registry.another(pool_size=1, patience=SENDING)
        self.upkeep = self.registry.another(pool_size=2)

    @property
    def dsn(self) -> str:
        """Where the database is."""
        return self.registry.dsn

    async def close(self) -> None:
        """Close all."""
        databases = (self.claims, self.outcomes, self.upkeep, self.registry)
        await limited(asyncio.gather(*(database.close() for database in databases)), CLOSING)
