"""What a worker may claim from: ordinary queues, and the exclusive queues and shards that it holds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dibs.db import calls
from dibs.errors import DibsError, UnknownWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from dibs.cluster.member import Member
    from dibs.db.database_async import AsyncDatabase

MARGIN = 0.1
"""A hold is trusted for this much less of its time than the database grants: by then its jobs must have stopped."""
LOOK = 0.2
"""How often to look whether a hold has run out, in seconds."""
NOTHING_HELD = 2.0
"""The same while there is nothing that could run out."""
NOT_YET = 0.5
"""In how many seconds to try again while the worker is not registered."""


class Holding:
    """Holds exclusive queues and shards for a worker, renews them, and shares them with the others.

    Run ``hold`` and ``fence`` as the steps of two loops. Claim from ``names`` only, and from nothing when it is empty.
    ``on_lost`` is called with the names of what could not be renewed in time: their jobs are to be stopped, because
    another worker is about to run them. What is handed over to a new worker is not lost: jobs of it that run may
    finish, and the new worker waits for that.
    """

    def __init__(
        self,
        database: AsyncDatabase,
        member: Member,
        queues: Sequence[str],
        *,
        on_lost: Callable[[frozenset[str]], None] = lambda _: None,
    ) -> None:
        self._database = database
        self._member = member
        self._queues = list(queues)
        self._on_lost = on_lost
        self._until: dict[str, float] = {}
        self._claimable: list[str] = []

    @property
    def secret(self) -> UUID | None:
        """The worker's secret, to claim with; another one after it had to register again."""
        return self._member.secret

    def names(self) -> list[str]:
        """What to claim from now: ordinary queues, and what is held."""
        now = time.monotonic()
        return [name for name in self._claimable if now < self._until[name]]

    def of(self, queues: Sequence[str]) -> list[str]:
        """What to claim from now of these queues: of a sharded one the shards that are held."""
        return [name for name in self.names() if name.partition("#")[0] in queues]

    async def hold(self) -> float:
        """Take, renew and rebalance; in how many seconds to do so again."""
        if self._member.secret is None:
            return NOT_YET
        began = time.monotonic()
        try:
            holds = await self._database.run(calls.shards.hold_shards(self._member.secret, self._queues))
        except UnknownWorker:
            await self._member.beat()
            return NOT_YET
        until = {
            h.name: float("inf") if h.lasts is None else began + h.lasts * (1 - MARGIN)
            for h in holds
            if h.name is not None
        }
        self._give_up({name: end for name, end in self._until.items() if name not in until})
        self._until = until
        self._claimable = [h.name for h in holds if h.claimable and h.name is not None]
        return min(h.again for h in holds)

    async def fence(self) -> float:
        """Give up what could not be renewed in time, by our own clock; in how many seconds to look again."""
        self._give_up(self._until)
        return LOOK if any(until < float("inf") for until in self._until.values()) else NOTHING_HELD

    def _give_up(self, these: Mapping[str, float]) -> None:
        now = time.monotonic()
        lost = frozenset(name for name, until in these.items() if now >= until)
        if lost:
            self._claimable = [name for name in self._claimable if name not in lost]
            self._until = {name: until for name, until in self._until.items() if name not in lost}
            self._on_lost(lost)

    async def release(self) -> None:
        """Let go of everything. If that fails, others take over when the holds expire."""
        self._claimable, self._until = [], {}
        if self._member.secret is None:
            return
        try:
            await self._database.run(calls.shards.release_shards(self._member.secret, None))
        except DibsError:
            return
