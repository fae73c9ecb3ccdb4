"""The interface of a collector that you write for any system of measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dibs.events import Events, JobStarted, RunEnded, RunLost
from dibs.metrics.running import Running
from dibs.states import Outcome

if TYPE_CHECKING:
    from dibs.job import Claimed


class MetricsCollector(Protocol):
    """Three methods. They are called on the event loop or in a worker's thread, so they should be quick."""

    def inc_busy_workers(self, queue: str, kind: str) -> None:
        """A handler of this kind is about to be called."""

    def dec_busy_workers(self, queue: str, kind: str) -> None:
        """A handler has ended: one call for each call of ``inc_busy_workers``."""

    def measure_task_duration(self, queue: str, kind: str, outcome: Outcome, seconds: float) -> None:
        """A run ended: its outcome and its duration."""


def collect(events: Events, collector: MetricsCollector) -> None:
    """Call ``collector`` whenever a handler begins and ends."""
    running = Running()

    def began(event: JobStarted) -> None:
        running.began(event.job)
        collector.inc_busy_workers(event.job.queue, event.job.kind)

    def over(job: Claimed, outcome: Outcome, seconds: float | None) -> None:
        passed = running.ended(job)
        if passed is not None:
            collector.dec_busy_workers(job.queue, job.kind)
            collector.measure_task_duration(job.queue, job.kind, outcome, passed if seconds is None else seconds)

    events.on(JobStarted, began)
    events.on(RunEnded, lambda event: over(event.job, event.outcome, event.ran))
    events.on(RunLost, lambda event: over(event.job, Outcome.LOST, None))
