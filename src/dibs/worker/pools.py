"""The connections of a worker: one for each purpose, so that none waits for another and all stay warm."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dibs.db.database_async import AsyncDatabase
from dibs.runtime import wait_at_most

if TYPE_CHECKING:
    from collections.abc import Callable

OUTCOME_PATIENCE = 15.0
"""Seconds to try to send outcomes over one connection: less than most leases last, so that another is tried in time."""
CLOSING = 2.0
"""Seconds to close all connections."""


class Pools:
    """A connection for claims, one for outcomes, one for the registry, and two for upkeep. Each is opened when used.

    A session keeps its own plans and floors: two sessions that took turns would each know only half of them.
    """

    def __init__(self, locate: str | Callable[[], str]) -> None:
        self.registry = AsyncDatabase(locate, pool_size=1)

    async def locate(self) -> None:
        """Find the database. An embedded one may have to be started first."""
        await asyncio.to_thread(lambda: self.dsn)

    async def open(self) -> None:
        """Connect to the database."""
        await self.registry.connect()
        self.claims = self.registry.another(pool_size=1)
        self.outcomes = self.registry.another(pool_size=1, patience=OUTCOME_PATIENCE)
        self.upkeep = self.registry.another(pool_size=2)

    @property
    def dsn(self) -> str:
        """The DSN of the database."""
        return self.registry.dsn

    async def close(self) -> None:
        """Close all connections."""
        databases = (self.claims, self.outcomes, self.upkeep, self.registry)
        await wait_at_most(asyncio.gather(*(database.close() for database in databases)), CLOSING)
