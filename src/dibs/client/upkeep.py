# Written by tools/unasync.py from upkeep_async.py: change that and run `make sync`.
"""The verbs of the upkeep: what workers do by themselves, for those who run none."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from dibs.db import calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.db.database import Database
    from dibs.info import MadeDay, Pruned, Rescued
    from dibs.shards import Hold


class Upkeep:
    """The upkeep by hand; workers do it by themselves. Reached as ``client.upkeep``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def rescue(self, max: int = 1000) -> list[Rescued]:
        """Take back leases that were not renewed in time; each job and its state now."""
        return self._database.run(calls.upkeep.rescue(max))

    def expire(self) -> int:
        """End every waiting job past its TTL or deadline; how many there were."""
        expired = 0
        after: UUID | None = UUID(int=0)
        while after is not None:
            count, after = self._database.run(calls.upkeep.expire(10_000, after))
            expired += count
        return expired

    def forget(self) -> int:
        """Delete hints and workers that are no longer needed; how many rows."""
        return self._database.run(calls.upkeep.forget())

    def make_days(self, ahead: int = 7) -> list[MadeDay]:
        """Make the days' partitions ahead of time; the name and outcome of each."""
        return self._database.run(calls.upkeep.make_days(ahead))

    def prune(self, max: int = 1000) -> list[Pruned]:
        """Drop days past retention; the name, outcome and rows of each."""
        return self._database.run(calls.upkeep.prune(max))

    def roll_up(self) -> int | None:
        """Bring the statistics up to date; how many runs were counted, or None when another process is doing so.

        The upkeep does so every few seconds.
        """
        counted, more = self._database.run(calls.statistics.roll_up())
        while more and counted is not None:
            again, more = self._database.run(calls.statistics.roll_up())
            counted += again or 0
        return counted

    def repair_groups(self) -> int:
        """Bring groups back to the present after the database's clock was set back; how many had to be."""
        return self._database.run(calls.groups.repair_groups())

    def repair_jobs(self) -> int:
        """Mend what the doctor calls lost jobs and gone queues; how many jobs wait again.

        That is none, unless something went wrong.
        """
        restored, after = 0, None
        while True:
            step, after = self._database.run(calls.upkeep.repair_jobs(after))
            restored += step
            if after is None:
                return restored

    def repair_limits(self) -> int:
        """See that each limit has all its units; how many had to be repaired."""
        return self._database.run(calls.limits.repair_limits())

    def hold_shards(self, worker: UUID, queues: str | Sequence[str]) -> list[Hold]:
        """Take, renew and rebalance a worker's hold on exclusive queues and shards; what it may claim from now."""
        names = [queues] if isinstance(queues, str) else queues
        return self._database.run(calls.shards.hold_shards(worker, names))

    def release_shards(self, worker: UUID, queues: Sequence[str] | None = None) -> int:
        """Let go of what a worker holds, of these queues or of all; how many shards that were."""
        return self._database.run(calls.shards.release_shards(worker, queues))
