"""The connections of a worker: each for one purpose, so that none waits for another and all stay warm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.db.database_async import AsyncDatabase

if TYPE_CHECKING:
    from collections.abc import Callable


class Pools:
    """A connection to claim with, one for outcomes, one for the registry, and two for upkeep; opened when used.

    A session keeps its own plans and floors: two that took turns would each know half as much.
    """

    def __init__(self, locate: str | Callable[[], str]) -> None:
        self.registry = AsyncDatabase(locate, pool_size=1)

    async def open(self) -> None:
        """Connect, once it is known where to."""
        await self.registry.connect()
        self.claims = self.registry.another(pool_size=1)
        self.outcomes = self.registry.another(pool_size=1)
        self.upkeep = self.registry.another(pool_size=2)

    @property
    def dsn(self) -> str:
        """Where the database is."""
        return self.registry.dsn

    async def close(self) -> None:
        """Close all."""
        for database in (self.claims, self.outcomes, self.upkeep, self.registry):
            await database.close()
