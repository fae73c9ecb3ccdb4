"""The metrics of a process, by name. A test compares them with docs/run/metrics.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.metrics.exposition import Bins, Cell, Counter, Family, Gauge, Histogram
from dibs.states import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.info import Depth

BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
"""Seconds, from a job that does nothing on an idle worker to one that waited or ran for an hour."""

JOB = ("queue", "kind")

STATES = tuple(state.value for state in State if state not in {State.SUCCEEDED, State.UNKNOWN})

QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Seconds, for round trips to the database."""


class DepthFamilies:
    """The content of the queues. Every worker and the dashboard show equal numbers, since they are the database's."""

    def __init__(self) -> None:
        self.jobs = Gauge("dibs_jobs", "Jobs now, by state.", "queue", "state")
        self.estimated = Gauge(
            "dibs_jobs_estimated",
            "1 if dibs_jobs is an estimate, because there are too many to count.",
            "queue",
            "state",
        )
        self.oldest_ready = Gauge("dibs_oldest_ready_seconds", "How long the oldest ready job has been due.", "queue")
        self.oldest_running = Gauge("dibs_oldest_running_seconds", "How long the oldest lease has been held.", "queue")
        self.paused = Gauge("dibs_queue_paused", "1 if the queue is paused.", "queue")
        self.depth_age = Gauge("dibs_depth_age_seconds", "How long ago the five metrics above were read.")

    def all(self) -> list[Family]:
        """Every metric, in the order above."""
        return list(vars(self).values())

    def note_depths(self, read: tuple[list[Depth], float] | None) -> None:
        """Replace the depths by those that were read, and their age in seconds; by none if the read failed."""
        for gauge in (self.jobs, self.estimated, self.oldest_ready, self.oldest_running, self.paused, self.depth_age):
            gauge.clear()
        if read is None:
            return
        self.depth_age.set(read[1])
        for depth in read[0]:
            for state in STATES:
                self.jobs.set(getattr(depth, state), depth.queue, state)
                self.estimated.set(state in depth.estimated, depth.queue, state)
            self.oldest_ready.set(depth.oldest_ready.total_seconds(), depth.queue)
            self.oldest_running.set(depth.oldest_running.total_seconds(), depth.queue)
            self.paused.set(depth.paused, depth.queue)


class Families(DepthFamilies):
    """The metrics of a process, at zero."""

    def __init__(self, buckets: Sequence[float] = BUCKETS) -> None:
        super().__init__()
        self._add_enqueues_and_claims()
        self._add_runs(buckets)
        self._add_reports_and_processes()

    def _add_enqueues_and_claims(self) -> None:
        # From producers.
        self.enqueued = Counter("dibs_enqueued_total", "Enqueues answered here.", *JOB, "outcome")
        self.dedup_hits = Counter("dibs_dedup_hits_total", "Enqueues answered here with a job that was there.", *JOB)
        # From workers: claiming.
        self.claims = Counter("dibs_claims_total", "Claims, by whether they found jobs or none.", "found")
        self.claimed_jobs = Counter("dibs_claimed_jobs_total", "Jobs claimed.")
        self.claim_seconds = Histogram("dibs_claim_seconds", "How long claims took.", buckets=QUICK)
        self.unknown_kinds = Counter("dibs_unknown_kinds_total", "Jobs left to other workers, unknown here.", *JOB)

    def _add_runs(self, buckets: Sequence[float]) -> None:
        # From workers: running.
        self.busy = Gauge("dibs_busy", "Runs that began and whose outcome is not recorded yet.", *JOB)
        self.wait_seconds = Histogram(
            "dibs_wait_seconds", "How long jobs were due before their handler was called.", *JOB, buckets=buckets
        )
        self.first_attempt_age = Histogram(
            "dibs_first_attempt_age_seconds", "Time from enqueue to the first attempt.", *JOB, buckets=buckets
        )
        self.run_seconds = Histogram(
            "dibs_run_seconds", "How long handlers took, by how the run ended.", *JOB, "outcome", buckets=buckets
        )
        self.runs = Counter("dibs_runs_total", "Runs ended, and the state the job went to.", *JOB, "outcome", "state")
        self.retries = Counter("dibs_retries_total", "Failed runs whose job is tried again.", *JOB)
        self.lost_leases = Counter("dibs_lost_leases_total", "Jobs that were no longer this worker's.", *JOB)
        self.renewed_leases = Counter("dibs_renewed_leases_total", "Leases renewed.")
        self.renew_seconds = Histogram("dibs_renew_seconds", "How long renewals took.", buckets=QUICK)

    def _add_reports_and_processes(self) -> None:
        # From workers: reporting.
        self.batches_sent = Counter("dibs_batches_sent_total", "Batches of outcomes sent.", "verb")
        self.outcomes_sent = Counter("dibs_outcomes_sent_total", "Outcomes sent in them.", "verb")
        self.send_seconds = Histogram("dibs_send_seconds", "How long sending a batch took.", "verb", buckets=QUICK)
        # From the upkeep.
        self.rescued = Counter("dibs_rescued_total", "Leases that ran out and were taken back.")
        self.expired = Counter("dibs_expired_total", "Jobs that ended because they were past their time.")
        self.upkeep = Counter("dibs_upkeep_total", "What the upkeep did, by chore.", "chore")
        # From processes.
        self.trouble = Counter("dibs_trouble_total", "What failed and is tried again.", "where")
        self.up = Gauge("dibs_worker_up", "1 from a worker's start until it stops claiming, then 0.")
        self.children_started = Counter("dibs_children_started_total", "Worker processes started.")
        self.children_died = Counter("dibs_children_died_total", "Worker processes that ended by themselves.")


class KindFamilies:
    """The values of one kind of jobs, looked up once, because each job touches all of them."""

    def __init__(self, families: Families, queue: str, kind: str) -> None:
        self.busy: Cell = families.busy.of(queue, kind)
        self.retries: Cell = families.retries.of(queue, kind)
        self.waits: Bins = families.wait_seconds.of(queue, kind)
        self.ages: Bins = families.first_attempt_age.of(queue, kind)
        self._ran: dict[str, Bins] = {}
        self._ended: dict[tuple[str, str], Cell] = {}
        self._families = families
        self._labels = (queue, kind)

    def ran(self, outcome: str) -> Bins:
        """Return the durations of the runs with this outcome."""
        return self._ran.get(outcome) or self._ran.setdefault(
            outcome, self._families.run_seconds.of(*self._labels, outcome)
        )

    def ended(self, outcome: str, state: str) -> Cell:
        """Return the counter of runs with this outcome, whose jobs have this state."""
        key = (outcome, state)
        return self._ended.get(key) or self._ended.setdefault(key, self._families.runs.of(*self._labels, *key))
