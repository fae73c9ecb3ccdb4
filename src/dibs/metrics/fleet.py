"""The metrics of the fleet as a whole, from the database."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

from dibs.metrics.exposition import CONTENT_TYPE, Counter, Gauge, Histogram, render
from dibs.metrics.families import JOB, DepthFamilies
from dibs.metrics.reading import Reading
from dibs.runtime.http import Page

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dibs.client.client_async import AsyncClient
    from dibs.info import Finding, Vital, WorkersWanted
    from dibs.stats import Counters

BUCKETS = tuple(0.0016 * 4**n for n in range(12))
"""Seconds, where the buckets of ``dibs.counters()`` end."""
OUTCOMES = ("succeeded", "failed", "lost", "snoozed", "released", "cancelled", "expired")
FLEET_EVERY = 10.0
"""Seconds between two looks at all but the depths; what ended is counted into the statistics as often."""
DOCTOR_EVERY = 60.0
"""Seconds between two visits of the doctor, who looks at much."""


class FleetFamilies(DepthFamilies):
    """The metrics of the fleet, without values. Those of ``dibs.vitals()`` have the names that it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.workers_wanted = Gauge(
            "dibs_workers_wanted", "Workers needed to do what is due within the target.", "queue"
        )
        self.queue_workers = Gauge("dibs_queue_workers", "Live workers that say they serve the queue.", "queue")
        self.arriving = Gauge("dibs_arriving_per_second", "Jobs enqueued per second, in the last 5 minutes.", "queue")
        self.runs = Counter("dibs_fleet_runs_total", "Runs ended, and jobs that ended without one.", *JOB, "outcome")
        self.run_seconds = Histogram(
            "dibs_fleet_run_seconds", "How long runs that succeeded or failed took.", *JOB, buckets=BUCKETS
        )
        self.wait_seconds = Histogram(
            "dibs_fleet_wait_seconds", "How long jobs were due before their first run.", *JOB, buckets=BUCKETS
        )
        self.findings = Gauge("dibs_doctor_findings", "What the doctor found, by check and level.", "check", "level")
        self._add_vitals()
        self.part_up = Gauge("dibs_part_up", "1 if this part of the page could be read, 0 if not.", "part")
        self.part_age = Gauge("dibs_part_age_seconds", "How long ago this part of the page was read.", "part")

    def _add_vitals(self) -> None:
        self.workers = Gauge("dibs_workers", "Workers that are alive, and that were lost.", "state")
        self.chore_late_seconds = Gauge("dibs_chore_late_seconds", "How long a chore has been due.", "chore")
        self.chore_failures = Gauge("dibs_chore_failures", "How often in a row a chore has failed.", "chore")
        self.schedules = Gauge("dibs_schedules", "Schedules, by status.", "status")
        self.schedule_late_seconds = Gauge(
            "dibs_schedule_late_seconds", "How long ago a schedule should have fired.", "schedule"
        )
        self.limit_concurrency = Gauge("dibs_limit_concurrency", "How many units a limit has.", "scope", "name")
        self.limit_used = Gauge("dibs_limit_used", "How many of them are in use.", "scope", "name")
        self.limit_blocked = Gauge("dibs_limit_blocked", "Jobs that wait for a limit, up to 10,000.", "scope", "name")
        self.horizon_age_seconds = Gauge(
            "dibs_horizon_age_seconds", "How long the oldest transaction that holds vacuum back has been open."
        )
        self.horizon_transactions = Gauge("dibs_horizon_transactions", "How many transactions have begun since.")
        self.notify_queue_ratio = Gauge("dibs_notify_queue_ratio", "How full the queue of notifications is, 0 to 1.")
        self.connections = Gauge("dibs_connections", "Connections of clients to the server.")
        self.connections_max = Gauge("dibs_connections_max", "How many there may be.")
        self.table_bytes = Gauge("dibs_table_bytes", "The size of a table with its days and indexes.", "table")
        self.table_dead_rows = Gauge("dibs_table_dead_rows", "Dead rows that vacuum has not removed.", "table")

    def note_wanted(self, queues: list[WorkersWanted]) -> None:
        """Set the number of workers that each queue needs, and has."""
        for queue in queues:
            self.workers_wanted.set(queue.workers, queue.queue)
            self.queue_workers.set(queue.live, queue.queue)
            self.arriving.set(queue.arriving, queue.queue)

    def note_counters(self, kinds: list[Counters]) -> None:
        """Set the counts since the install."""
        for kind in kinds:
            labels = (kind.queue, kind.kind)
            for outcome in OUTCOMES:
                self.runs.set(getattr(kind, outcome), *labels, outcome)
            self.run_seconds.of(*labels).replace(kind.run_buckets, kind.run_seconds)
            self.wait_seconds.of(*labels).replace(kind.wait_buckets, kind.wait_seconds)

    def note_vitals(self, vitals: list[Vital]) -> None:
        """Set numbers of the whole database; skip those that a newer schema measures and this release does not know."""
        for vital in vitals:
            gauge = getattr(self, vital.name, None)
            if isinstance(gauge, Gauge) and len(gauge.labels) == len(vital.labels):
                gauge.set(vital.value, *vital.labels)

    def note_findings(self, findings: list[Finding]) -> None:
        """Set the findings of the doctor."""
        for finding in findings:
            self.findings.add(1, finding.name, finding.level)


class Fleet:
    """Metrics of all workers together, from the database; ``dibs web`` serves them under ``/metrics``.

    ``target`` is the number of seconds within which due jobs should be done, for ``dibs_workers_wanted``. Each part of
    the page is read separately: the depths for each request, the findings of the doctor every minute, and the others
    every 10 seconds. A part that failed is left out, and ``dibs_part_up`` says so. If a part takes longer than two
    seconds, the page has its last answer, if there is one; ``dibs_part_age_seconds`` says how old it is.
    """

    def __init__(self, client: AsyncClient, *, target: float = 300.0) -> None:
        wanted = functools.partial(client.workers.wanted, target=target)
        self._parts: list[tuple[Reading[Any], Callable[[FleetFamilies, Any, float], None]]] = []
        self._add("depths", client.queues.depths, lambda families, read, age: families.note_depths((read, age)))
        self._add("workers_wanted", wanted, lambda families, read, _: families.note_wanted(read), FLEET_EVERY)
        self._add(
            "counters", client.stats.counters, lambda families, read, _: families.note_counters(read), FLEET_EVERY
        )
        self._add("vitals", client.stats.vitals, lambda families, read, _: families.note_vitals(read), FLEET_EVERY)
        self._add("doctor", client.doctor, lambda families, read, _: families.note_findings(read), DOCTOR_EVERY)

    def _add(
        self,
        name: str,
        ask: Callable[[], Awaitable[Any]],
        note: Callable[[FleetFamilies, Any, float], None],
        every: float | None = None,
    ) -> None:
        self._parts.append((Reading(name, ask, every), note))

    async def page(self) -> Page:
        """Return the page to serve under ``/metrics``."""
        reads = await asyncio.gather(*(part.latest() for part, _ in self._parts))
        families = FleetFamilies()
        for (part, note), read in zip(self._parts, reads, strict=True):
            families.part_up.set(read is not None, part.name)
            if read is not None:
                families.part_age.set(read[1], part.name)
                note(families, *read)
        return Page(render(families.all()), content_type=CONTENT_TYPE)

    def close(self) -> None:
        """Stop waiting for answers of the database."""
        for part, _ in self._parts:
            part.close()
