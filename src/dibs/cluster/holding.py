"""Holds exclusive queues and shards for a worker. It may claim from these and from ordinary queues."""

from __future__ import annotations

import math
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
"""The last tenth of a hold is not used, so that its jobs have stopped when the hold ends."""
LOOK_EVERY = 0.2
"""Seconds between two looks for holds that have run out."""
LOOK_WHEN_IDLE = 2.0
"""The same while nothing is held that could run out."""
RETRY_AFTER = 0.5
"""In how many seconds to try again while the worker is not registered."""


class Holding:
    """Holds exclusive queues and shards, renews the holds, and shares them with the other workers.

    Run ``hold`` and ``fence`` as the steps of two loops. Claim from ``names`` only, and from nothing when it is empty.
    ``on_lost`` is called with the names of holds that could not be renewed in time. Stop the jobs of these, because
    another worker is about to run them. A shard that is handed over to a new worker is not lost: its running jobs may
    finish, and the new worker waits for them.
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
        """The worker's secret, to claim with. It changes when the worker has to register again."""
        return self._member.secret

    def names(self) -> list[str]:
        """The names to claim from now: ordinary queues, and held ones."""
        now = time.monotonic()
        return [name for name in self._claimable if now < self._until[name]]

    def names_of(self, queues: Sequence[str]) -> list[str]:
        """The names to claim from now for these queues: instead of a sharded queue its shards that are held."""
        return [name for name in self.names() if name.partition("#")[0] in queues]

    async def hold(self) -> float:
        """Take, renew and share out holds. Return in how many seconds to do so again."""
        if self._member.secret is None:
            return RETRY_AFTER
        began = time.monotonic()
        try:
            holds = await self._database.run(calls.shards.hold_shards(self._member.secret, self._queues))
        except UnknownWorker:
            await self._member.beat()
            return RETRY_AFTER
        until = {
            hold.name: math.inf if hold.lasts is None else began + hold.lasts * (1 - MARGIN)
            for hold in holds
            if hold.name is not None
        }
        # A hold that is gone before its end was handed over, and is not lost.
        self._give_up_expired({name: end for name, end in self._until.items() if name not in until})
        self._until = until
        self._claimable = [hold.name for hold in holds if hold.claimable and hold.name is not None]
        return min(hold.again for hold in holds)

    async def fence(self) -> float:
        """Give up holds that were not renewed in time, by our own clock. Return in how many seconds to look again."""
        self._give_up_expired(self._until)
        return LOOK_EVERY if any(until < math.inf for until in self._until.values()) else LOOK_WHEN_IDLE

    def _give_up_expired(self, holds: Mapping[str, float]) -> None:
        now = time.monotonic()
        lost = frozenset(name for name, until in holds.items() if now >= until)
        if lost:
            self._claimable = [name for name in self._claimable if name not in lost]
            self._until = {name: until for name, until in self._until.items() if name not in lost}
            self._on_lost(lost)

    async def release(self) -> None:
        """Let go of all holds. If that fails, others take over when they expire."""
        self._claimable, self._until = [], {}
        if self._member.secret is None:
            return
        try:
            await self._database.run(calls.shards.release_shards(self._member.secret, None))
        except DibsError:
            return
