"""Metrics of a process for Prometheus: counted from its events, and served as a page."""

from __future__ import annotations

import re
import sys
import threading
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dibs.events import (
    ChildDied,
    ChildStarted,
    Event,
    Events,
    JobEnqueued,
    JobsClaimed,
    JobStarted,
    KindUnknown,
    LeasesRenewed,
    OutcomesSent,
    RunEnded,
    RunLost,
    Trouble,
    UpkeepDone,
    WorkerStarted,
    WorkerStopping,
)
from dibs.ids import id_time
from dibs.metrics.exposition import CONTENT_TYPE, merge, render
from dibs.metrics.families import BUCKETS, Families, KindFamilies
from dibs.metrics.reading import Reading
from dibs.metrics.running import Running
from dibs.metrics.sharing import Shared, gather
from dibs.runtime.http import Page
from dibs.states import WAITING, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from dibs.info import Depth
    from dibs.job import Claimed

E = TypeVar("E", bound=Event)

_NUMBER = re.compile(r"\b\d+ ?")
"""A pattern for the parts of a place that must not become a label: each number would make a separate series."""


class HasDepths(Protocol):
    """Counts the jobs of every queue, as ``client.queues`` does."""

    async def depths(self) -> list[Depth]:
        """Count the jobs of every queue."""
        ...


class HasQueues(Protocol):
    """An object with queues, such as an ``AsyncClient``."""

    @property
    def queues(self) -> HasDepths:
        """Its queues."""
        ...


class Prometheus:
    """Subscribes to the events of an app or a worker, and returns their metrics as text.

    The depths of the queues are read from ``client`` for each request of the page, at most once per second. Without a
    client they are left out, which suits a process that only enqueues. ``children`` is a folder in which other
    processes share their metrics: the page has them too, with the label ``process``.
    """

    def __init__(
        self,
        events: Events,
        client: HasQueues | None = None,
        *,
        buckets: Sequence[float] = BUCKETS,
        children: Path | None = None,
    ) -> None:
        self._children = children
        self._depths = None if client is None else Reading("depths", client.queues.depths)
        self._running = Running()
        self._families = Families(buckets)
        self._kinds: dict[tuple[str, str], KindFamilies] = {}
        self._lock = threading.Lock()
        for kind, count in self._counts():
            events.on(kind, self._locked(count))

    async def page(self) -> Page:
        """Return the page to serve under ``/metrics``."""
        read = None if self._depths is None else await self._depths.latest()
        with self._lock:
            self._families.note_depths(read)
        text = self.text()
        if self._children is not None:
            text = merge(text, await gather(self._children), "process")
        return Page(text, content_type=CONTENT_TYPE)

    def share(self, folder: Path) -> Shared:
        """Return a share of these metrics for the parent's page; the caller opens and closes it."""
        return Shared(folder, self.text)

    def text(self) -> str:
        """Return all metrics, with the depths of the last page and the metrics of prometheus_client."""
        with self._lock:
            own = render(self._families.all())
        return own + _others()  # Without the lock: a collector of a handler may enqueue, or take long.

    def _counts(self) -> list[tuple[type[Any], Callable[[Any], None]]]:
        return [
            (JobEnqueued, self._enqueued),
            (JobsClaimed, self._claimed),
            (JobStarted, self._started),
            (RunEnded, self._ended),
            (RunLost, self._lost),
            (LeasesRenewed, self._renewed),
            (KindUnknown, lambda e: self._families.unknown_kinds.add(1, e.job.queue, e.job.kind)),
            (OutcomesSent, self._sent),
            (UpkeepDone, self._upkept),
            (Trouble, lambda e: self._families.trouble.add(1, _NUMBER.sub("", e.where))),
            (WorkerStarted, lambda _: self._families.up.set(1)),
            (WorkerStopping, lambda _: self._families.up.set(0)),
            (ChildStarted, lambda _: self._families.children_started.add(1)),
            (ChildDied, lambda _: self._families.children_died.add(1)),
        ]

    def _locked(self, count: Callable[[E], None]) -> Callable[[E], None]:
        # Events come from several threads, and an increment is a read and a write.
        def counted(event: E) -> None:
            with self._lock:
                count(event)

        return counted

    def _enqueued(self, event: JobEnqueued) -> None:
        self._families.enqueued.add(1, event.queue, event.kind, event.outcome)
        if event.outcome == "duplicate":
            self._families.dedup_hits.add(1, event.queue, event.kind)

    def _claimed(self, event: JobsClaimed) -> None:
        self._families.claims.add(1, "jobs" if event.count else "none")
        self._families.claimed_jobs.add(event.count)
        self._families.claim_seconds.observe(event.took)

    def _started(self, event: JobStarted) -> None:
        job = event.job
        kind = self._kind(job)
        self._running.began(job)
        kind.busy.value += 1
        kind.waits.observe(event.waited)
        if job.run == 1:
            # Its id was made at the enqueue, and it begins ``waited`` seconds after it was due.
            age = job.due_at.timestamp() - id_time(job.id) + event.waited
            kind.ages.observe(max(age, 0.0))

    def _ended(self, event: RunEnded) -> None:
        kind = self._kind(event.job)
        kind.ended(event.outcome, event.state).value += 1
        if self._running.ended(event.job) is not None:
            kind.busy.value -= 1
            kind.ran(event.outcome).observe(event.ran)
        if event.outcome is Outcome.FAILED and event.state in WAITING:
            kind.retries.value += 1
        elif event.state == "expired":
            self._families.expired.add(1)

    def _lost(self, event: RunLost) -> None:
        kind = self._kind(event.job)
        self._families.lost_leases.add(1, event.job.queue, event.job.kind)
        passed = self._running.ended(event.job)
        if passed is not None:
            kind.busy.value -= 1
            kind.ran(Outcome.LOST).observe(passed)

    def _kind(self, job: Claimed) -> KindFamilies:
        key = (job.queue, job.kind)
        return self._kinds.get(key) or self._kinds.setdefault(key, KindFamilies(self._families, *key))

    def _renewed(self, event: LeasesRenewed) -> None:
        self._families.renewed_leases.add(event.count)
        self._families.renew_seconds.observe(event.took)

    def _sent(self, event: OutcomesSent) -> None:
        self._families.batches_sent.add(1, event.verb)
        self._families.outcomes_sent.add(event.count, event.verb)
        self._families.send_seconds.observe(event.took, event.verb)

    def _upkept(self, event: UpkeepDone) -> None:
        self._families.upkeep.add(event.count, event.chore)
        if event.chore == "rescue":
            self._families.rescued.add(event.count)
        elif event.chore == "expire":
            self._families.expired.add(event.count)


def _others() -> str:
    """Return the metrics of the official client library, if a handler has imported it: it has no other page here."""
    library: Any = sys.modules.get("prometheus_client")
    return "" if library is None else library.generate_latest().decode()
