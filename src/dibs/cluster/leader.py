"""One process does the upkeep: the live one that registered first."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dibs.db import calls

if TYPE_CHECKING:
    from dibs.cluster.member import Member
    from dibs.db.database_async import AsyncDatabase

AGAIN = 5.0
"""Seconds until the question is asked again."""


class Leader:
    """Whether this process leads. Two leaders at once are harmless: having one only saves work."""

    def __init__(self, database: AsyncDatabase, member: Member) -> None:
        self._database = database
        self._member = member
        self._leads = False
        self._asked = -AGAIN

    async def leads(self) -> bool:
        """Whether the upkeep is ours to do now."""
        if self._member.secret is None:
            return False
        if time.monotonic() - self._asked >= AGAIN:
            self._leads = await self._database.run(calls.workers.leads(self._member.secret))
            self._asked = time.monotonic()
        return self._leads
