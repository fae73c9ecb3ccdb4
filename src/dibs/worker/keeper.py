"""Renews leases from a separate thread and connection, so that a blocked event loop loses nothing.

Another thread stops jobs whose leases could not be renewed in time: it waits for nobody, so that a silent database
does not keep it from doing so.
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

BATCH = 1000
SHARE = 3
"""A lease is renewed when a third of it has passed."""
NAP = 0.2
"""How many seconds pass between two looks at most: a lease that was taken meanwhile may be short."""
PATIENCE = (1.0, 6.0)
"""The least and the most seconds that a renewal may take; in between, a fifth of the shortest lease."""
HEARD = 1.0
"""For how many seconds to look for a run that a ring named: the answer to its claim may still be on its way."""
MARKS = 10_000
"""How many such runs to look for: anyone may ring."""
CLOSING = 2.0
"""How many seconds the threads have to end."""


class _Kept:
    """A lease that is kept: how long it lasts, until when it does by our clock, and progress that is not sent yet.

    It ``is_rung`` when a ring says that it is worth asking for it now.
    """

    __slots__ = ("is_rung", "job", "length", "news", "until")

    def __init__(self, job: Claimed, now: float) -> None:
        self.job = job
        self.length = job.lease
        self.until = now + self.length
        self.news: dict[str, Any] | None = None
        self.is_rung = False

    def is_over(self, now: float) -> bool:
        """Whether the lease may end any moment.

        By our own clock, from before the claim or renewal was sent: never later than the database sees it.
        """
        return now > self.until - self.length / 10


class Keeper:
    """Keeps the leases of the jobs in hand; says which are to stop, because they were cancelled or lost."""

    def __init__(self, dsn: str, events: Events, pulse: Pulse) -> None:
        self._events = events
        self._pulse = pulse
        self._database = Database(dsn, pool_size=1, patience=PATIENCE[0])
        self._stop_job: StopJob = lambda *_: None
        # Shared with the event loop without a lock: every access is one operation of the dict.
        self._held: dict[bytes, _Kept] = {}
        self._rung: dict[str, float] = {}
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for name, run in (("dibs-keeper", self._renew_all), ("dibs-fence", self._fence_all))
        ]

    def start(self, stop_job: StopJob) -> None:
        """Begin to keep leases; ``stop_job`` is called in the keeper's thread."""
        self._stop_job = stop_job
        for thread in self._threads:
            thread.start()

    def take(self, jobs: list[Claimed], since: float) -> list[Claimed]:
        """Keep these jobs' leases from now on; they began after ``since``, when they were asked for.

        Returns those that are not kept, because they may be over already: the answer was long in coming.
        """
        late = []
        now = time.monotonic()
        for job in jobs:
            kept = _Kept(job, since)
            if kept.is_over(now):
                late.append(job)
            else:
                self._held[job._run_key] = kept
        return late

    @property
    def is_alive(self) -> bool:
        """Whether leases are being kept."""
        return all(thread.is_alive() for thread in self._threads)

    def let_go(self, key: bytes) -> None:
        """Keep this one no longer."""
        self._held.pop(key, None)

    def holds(self, key: bytes) -> bool:
        """Whether this one's lease is kept."""
        return key in self._held

    def of_queues(self, queues: Collection[str]) -> list[Claimed]:
        """The jobs in hand that are of these queues."""
        return [kept.job for kept in list(self._held.values()) if kept.job.queue in queues]

    def note(self, job: Claimed, progress: dict[str, Any]) -> None:
        """Send a run's progress with the next round; of several only the last."""
        kept = self._held.get(job._run_key)
        if kept is not None:
            kept.news = progress

    def hear(self, marks: Sequence[str]) -> None:
        """Ask at once for the runs with these marks, if they are ours: each was asked to stop."""
        until = time.monotonic() + HEARD
        self._rung.update(dict.fromkeys(marks[: MARKS - len(self._rung)], until))

    def close(self) -> None:
        """Stop keeping leases."""
        self._ended.set()
        for thread in self._threads:
            thread.join(CLOSING)
        self._database.close()

    def _shortest(self) -> float:
        return min((kept.length for kept in list(self._held.values())), default=30.0)

    def _renew_all(self) -> None:
        while not self._ended.wait(min(NAP, self._shortest() / 10)):
            try:
                self._renew_due()
                self._ask()
            except Exception as error:
                self._events.tell(Trouble("renewing leases", error))

    def _renew_due(self) -> None:
        now = time.monotonic()
        held = list(self._held.values())
        if self._rung:
            self._find_rung(held, now)
        due = [kept for kept in held if kept.is_rung or now >= kept.until - kept.length * (1 - 1 / SHARE)]
        for n in range(0, len(due), BATCH):
            self._renew(due[n : n + BATCH])
        self._tell_news([kept for kept in held if kept.news is not None])

    def _find_rung(self, held: list[_Kept], now: float) -> None:
        for kept in held:
            if self._rung.pop(kept.job._mark, None) is not None:
                kept.is_rung = True
        for mark, until in list(self._rung.items()):
            if now > until:
                self._rung.pop(mark, None)

    def _run(self, call: Call[R]) -> R:
        least, most = PATIENCE
        with self._pulse.asking():
            return self._database.run(call, patience=max(least, min(most, self._shortest() / 5)))

    def _ask(self) -> None:
        """Ask for something small now and then, so that an outage is noticed though no lease is due."""
        if self._pulse.is_due:
            with suppress(DibsError), self._pulse.asking():
                self._database.run(calls.schema.now(), patience=0)

    def _renew(self, due: list[_Kept]) -> None:
        before = time.monotonic()
        try:
            reach("keeper.before_send")
            answers = self._run(calls.jobs.extend_many([kept.job for kept in due], None, None))
            reach("keeper.after_send")
        except DibsError as error:
            self._events.tell(Trouble("renewing leases", error))
            return
        self._events.tell(LeasesRenewed(len(due), time.monotonic() - before))
        for kept, answer in zip(due, answers, strict=True):
            kept.is_rung = answer.answer is Answer.BUSY
            if answer.answer in {Answer.OK, Answer.CANCEL}:
                kept.until = before + kept.length
            if answer.answer is Answer.CANCEL:
                self._stop_job(kept.job, "cancelled")
            elif answer.answer is Answer.LOST:
                self._stop_job(kept.job, "lost")

    def _tell_news(self, these: list[_Kept]) -> None:
        if not these:
            return
        news = [kept.news for kept in these]
        try:
            self._run(calls.jobs.progress_many([kept.job for kept in these], news))
        except DibsError as error:
            self._events.tell(Trouble("reporting progress", error))
        for kept, told in zip(these, news, strict=True):
            if kept.news is told:
                kept.news = None

    def _fence_all(self) -> None:
        while not self._ended.wait(min(NAP, self._shortest() / 10)):
            self._fence()
            self._pulse.look()

    def _fence(self) -> None:
        for kept in list(self._held.values()):
            if kept.is_over(time.monotonic()):
                self._stop_job(kept.job, "lost")
