"""Renews leases from a thread and a connection of its own, so that a blocked event loop loses nothing."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from dibs.db import calls
from dibs.db.database import Database
from dibs.errors import DibsError
from dibs.events import LeasesRenewed, Trouble
from dibs.runtime.points import reach

if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.events import Events
    from dibs.job import Claimed

BATCH = 1000
SHARE = 3
"""A lease is renewed when a third of it has passed."""


class Keeper:
    """Keeps the leases of the jobs in hand; says which are to stop, because they were cancelled or lost."""

    def __init__(self, dsn: str, events: Events, stop_job: Callable[[Claimed, str], None]) -> None:
        self._events = events
        self._database = Database(dsn, pool_size=1, patience=1.0)
        self._stop_job = stop_job
        # Shared with the event loop without a lock: every access is one operation of the dict.
        self._held: dict[int, tuple[Claimed, float, float]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dibs-keeper", daemon=True)

    def start(self) -> None:
        """Begin to keep leases."""
        self._thread.start()

    def take(self, jobs: list[Claimed]) -> None:
        """Keep these jobs' leases from now on."""
        now = time.monotonic()
        for job in jobs:
            length = (job.lease_until - job.claimed_at).total_seconds()
            self._held[job.id.int] = (job, length, now + length)

    @property
    def is_alive(self) -> bool:
        """Whether leases are being kept."""
        return self._thread.is_alive()

    def let_go(self, key: int) -> None:
        """Keep this one no longer."""
        self._held.pop(key, None)

    def holds(self, key: int) -> bool:
        """Whether this one's lease is kept."""
        return key in self._held

    def close(self) -> None:
        """Stop keeping leases."""
        self._ended.set()
        self._thread.join()
        self._database.close()

    def _run(self) -> None:
        nap = 0.2
        while not self._ended.wait(nap):
            now = time.monotonic()
            held = list(self._held.values())
            due = [job for job, length, until in held if now >= until - length * (1 - 1 / SHARE)]
            shortest = min((length for _, length, _ in held), default=30.0)
            nap = min(1.0, shortest / 10)
            for n in range(0, len(due), BATCH):
                self._renew(due[n : n + BATCH])
            self._fence()

    def _renew(self, jobs: list[Claimed]) -> None:
        before = time.monotonic()
        try:
            reach("keeper.before_send")
            answers = self._database.run(calls.extend_many(jobs, None, None))
            reach("keeper.after_send")
        except DibsError as error:
            self._events.tell(Trouble("renewing leases", error))
            return
        self._events.tell(LeasesRenewed(len(jobs), time.monotonic() - before))
        for job, answer in zip(jobs, answers, strict=True):
            found = self._held.get(job.id.int)
            if answer.answer in {"ok", "cancel"} and found is not None and found[0] is job:
                # Let go meanwhile, it would come back here for one more renewal, and be found lost: harmless.
                self._held[job.id.int] = (job, found[1], before + found[1])
            if answer.answer in {"cancel", "lost"}:
                self._stop_job(job, answer.answer)

    def _fence(self) -> None:
        # By our own clock, from before the last renewal was sent: never later than the database sees it.
        now = time.monotonic()
        for job, length, until in list(self._held.values()):
            if now > until - length / 10:
                self._stop_job(job, "lost")
