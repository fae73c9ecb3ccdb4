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
    from uuid import UUID

    from dibs.events import Events
    from dibs.job import Claimed

BATCH = 1000
SHARE = 3
"""A lease is renewed when a third of it has passed."""


class Keeper:
    """Keeps the leases of the jobs in hand; says which are to stop, because they were cancelled or lost."""

    def __init__(self, dsn: str, events: Events, stop_job: Callable[[UUID, str], None]) -> None:
        self._events = events
        self._database = Database(dsn, pool_size=1, patience=1.0)
        self._stop_job = stop_job
        self._held: dict[UUID, tuple[Claimed, float, float]] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dibs-keeper", daemon=True)

    def start(self) -> None:
        """Begin to keep leases."""
        self._thread.start()

    def take(self, jobs: list[Claimed]) -> None:
        """Keep these jobs' leases from now on."""
        now = time.monotonic()
        with self._lock:
            for job in jobs:
                length = (job.lease_until - job.claimed_at).total_seconds()
                self._held[job.id] = (job, length, now + length)

    @property
    def is_alive(self) -> bool:
        """Whether leases are being kept."""
        return self._thread.is_alive()

    def let_go(self, id: UUID) -> None:
        """Keep this one no longer."""
        with self._lock:
            self._held.pop(id, None)

    def holds(self, id: UUID) -> bool:
        """Whether this one's lease is kept."""
        with self._lock:
            return id in self._held

    def close(self) -> None:
        """Stop keeping leases."""
        self._ended.set()
        self._thread.join()
        self._database.close()

    def _run(self) -> None:
        nap = 0.2
        while not self._ended.wait(nap):
            now = time.monotonic()
            with self._lock:
                due = [job for job, length, until in self._held.values() if now >= until - length * (1 - 1 / SHARE)]
                shortest = min((length for _, length, _ in self._held.values()), default=30.0)
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
            self._events.tell(Trouble(f"renewing {len(jobs)} leases", error))
            return
        self._events.tell(LeasesRenewed(len(jobs), time.monotonic() - before))
        for job, answer in zip(jobs, answers, strict=True):
            if answer.answer in {"ok", "cancel"}:
                with self._lock:
                    if job.id in self._held:
                        length = self._held[job.id][1]
                        self._held[job.id] = (job, length, before + length)
            if answer.answer in {"cancel", "lost"}:
                self._stop_job(job.id, answer.answer)

    def _fence(self) -> None:
        # By our own clock, from before the last renewal was sent: never later than the database sees it.
        now = time.monotonic()
        with self._lock:
            ending = [id for id, (_, length, until) in self._held.items() if now > until - length / 10]
        for id in ending:
            self._stop_job(id, "lost")
