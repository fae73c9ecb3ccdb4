"""Renews leases from a separate thread and connection, so that a blocked event loop loses none.

Another thread stops jobs whose leases are about to end without a renewal. It makes no calls, so a silent database does
not hold it up.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from dibs.db import calls
from dibs.db.database import Database
from dibs.errors import DibsError
from dibs.events import LeasesRenewed, Trouble
from dibs.runtime.points import reach
from dibs.states import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from dibs.db.calls import Call
    from dibs.events import Events
    from dibs.job import Claimed
    from dibs.worker.pulse import Pulse

    StopJob = Callable[[Claimed, Literal["cancelled", "lost"]], object]

R = TypeVar("R")

RENEWALS_PER_LEASE = 3
"""A lease is renewed when a third of it has passed."""
LEASES_PER_CALL = 1000
LONGEST_NAP = 0.2
"""The most seconds between two rounds: a lease that was taken meanwhile may be short."""
LEAST_PATIENCE, MOST_PATIENCE = 1.0, 6.0
"""The bounds, in seconds, of the time that a renewal may take: a fifth of the shortest lease."""
REMEMBER_MARK = 1.0
"""Seconds to look for a run that a ring named: the answer to its claim may still be on its way."""
MOST_MARKS = 10_000
"""The most such runs to look for: anyone may ring."""
CLOSING = 2.0
"""Seconds that each thread has to end."""


class _Lease:
    """A lease, when it ends by our clock, and the progress of its run that is not sent yet."""

    __slots__ = ("is_lost", "job", "length", "progress", "renew_now", "until")

    def __init__(self, job: Claimed, since: float) -> None:
        self.job = job
        self.length = job.lease
        self.until = since + self.length
        self.progress: dict[str, Any] | None = None
        self.renew_now = False
        """Renew now, because a ring said that somebody asked this run to stop."""
        self.is_lost = False
        """The database gave the job to another: renew no more, though a run in a batch goes on with the others."""

    def is_over(self, now: float) -> bool:
        """Return true in the last tenth of the lease.

        ``until`` counts from before the claim or the renewal was sent, so it is never later than for the database.
        """
        return now > self.until - self.length / 10


class Keeper:
    """Keeps the leases of the jobs in flight, and stops jobs that were cancelled or lost."""

    def __init__(self, dsn: str, events: Events, pulse: Pulse) -> None:
        self._events = events
        self._pulse = pulse
        self._database = Database(dsn, pool_size=1, patience=LEAST_PATIENCE)
        self._stop_job: StopJob = lambda *_: None
        # Both are shared with the event loop without a lock: every access is one operation of the dict.
        self._leases: dict[bytes, _Lease] = {}
        self._marks: dict[str, float] = {}
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for name, run in (("dibs-keeper", self._renew_until_ended), ("dibs-fence", self._stop_lost_until_ended))
        ]

    def start(self, stop_job: StopJob) -> None:
        """Begin to keep leases. ``stop_job`` is called in the keeper's threads."""
        self._stop_job = stop_job
        for thread in self._threads:
            thread.start()

    def take(self, jobs: list[Claimed], since: float) -> list[Claimed]:
        """Keep the leases of these jobs, which began after ``since``, when the claim was sent.

        If the answer to the claim came so late that a lease may be over, it is not kept. Return such jobs.
        """
        late = []
        now = time.monotonic()
        for job in jobs:
            lease = _Lease(job, since)
            if lease.is_over(now):
                late.append(job)
            else:
                self._leases[job._run_key] = lease
        return late

    @property
    def is_alive(self) -> bool:
        """True while both threads run, and after :meth:`close`."""
        return self._ended.is_set() or all(thread.is_alive() for thread in self._threads)

    def let_go(self, key: bytes) -> None:
        """Keep the lease of this run no longer."""
        self._leases.pop(key, None)

    def holds(self, key: bytes) -> bool:
        """Return true if the lease of this run is kept."""
        return key in self._leases

    def jobs_of(self, queues: Collection[str]) -> list[Claimed]:
        """Return the jobs of these queues whose leases are kept."""
        return [lease.job for lease in list(self._leases.values()) if lease.job.queue in queues]

    def note_progress(self, job: Claimed, progress: dict[str, Any]) -> None:
        """Send a run's progress with the next round. Progress that is not sent by then is replaced by this."""
        lease = self._leases.get(job._run_key)
        if lease is not None:
            lease.progress = progress

    def hear(self, marks: Sequence[str]) -> None:
        """Renew the runs with these marks at once, if they are ours: somebody asked each of them to stop."""
        until = time.monotonic() + REMEMBER_MARK
        self._marks.update(dict.fromkeys(marks[: MOST_MARKS - len(self._marks)], until))

    def close(self) -> None:
        """Stop keeping leases."""
        self._ended.set()
        for thread in self._threads:
            thread.join(CLOSING)
        self._database.close()

    def _shortest(self) -> float:
        return min((lease.length for lease in list(self._leases.values())), default=30.0)

    def _nap(self) -> float:
        return min(LONGEST_NAP, self._shortest() / 10)

    # In the thread dibs-keeper

    def _renew_until_ended(self) -> None:
        while not self._ended.wait(self._nap()):
            try:
                self._renew_due()
                self._probe()
            except Exception as error:
                self._events.tell(Trouble("renewing leases", error))

    def _renew_due(self) -> None:
        now = time.monotonic()
        leases = list(self._leases.values())
        if self._marks:
            self._mark_rung(leases, now)
        left = 1 - 1 / RENEWALS_PER_LEASE
        due = [
            lease
            for lease in leases
            if not lease.is_lost and (lease.renew_now or now >= lease.until - lease.length * left)
        ]
        for n in range(0, len(due), LEASES_PER_CALL):
            self._renew(due[n : n + LEASES_PER_CALL])
        if reporting := [lease for lease in leases if lease.progress is not None]:
            self._send_progress(reporting)

    def _mark_rung(self, leases: list[_Lease], now: float) -> None:
        for lease in leases:
            if self._marks.pop(lease.job._mark, None) is not None:
                lease.renew_now = True
        for mark, until in list(self._marks.items()):
            if now > until:
                self._marks.pop(mark, None)

    def _run(self, call: Call[R]) -> R:
        with self._pulse.calling():
            patience = max(LEAST_PATIENCE, min(MOST_PATIENCE, self._shortest() / 5))
            return self._database.run(call, patience=patience)

    def _probe(self) -> None:
        """Make a small call now and then, so that an outage is noticed while no lease is due."""
        if self._pulse.is_due:
            with suppress(DibsError), self._pulse.calling():
                self._database.run(calls.schema.now(), patience=0)

    def _renew(self, due: list[_Lease]) -> None:
        began = time.monotonic()
        try:
            reach("keeper.before_send")
            answers = self._run(calls.jobs.extend_many([lease.job for lease in due], None, None))
            reach("keeper.after_send")
        except DibsError as error:
            self._events.tell(Trouble("renewing leases", error))
            return
        self._events.tell(LeasesRenewed(len(due), time.monotonic() - began))
        for lease, extended in zip(due, answers, strict=True):
            lease.renew_now = extended.answer is Answer.BUSY  # Its row is locked: ask again.
            if extended.answer in {Answer.OK, Answer.CANCEL}:
                lease.until = began + lease.length
            if extended.answer is Answer.CANCEL:
                self._stop_job(lease.job, "cancelled")
            elif extended.answer is Answer.LOST:
                lease.is_lost = True
                self._stop_job(lease.job, "lost")

    def _send_progress(self, leases: list[_Lease]) -> None:
        sent = [lease.progress for lease in leases]
        try:
            self._run(calls.jobs.progress_many([lease.job for lease in leases], sent))
        except DibsError as error:
            self._events.tell(Trouble("reporting progress", error))
        for lease, progress in zip(leases, sent, strict=True):
            if lease.progress is progress:  # Otherwise the handler has reported again meanwhile.
                lease.progress = None

    # In the thread dibs-fence

    def _stop_lost_until_ended(self) -> None:
        while not self._ended.wait(self._nap()):
            self._stop_lost()
            self._pulse.report_outage()

    def _stop_lost(self) -> None:
        for lease in list(self._leases.values()):
            if lease.is_over(time.monotonic()):
                self._stop_job(lease.job, "lost")
