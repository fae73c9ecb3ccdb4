"""Statistics as values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from datetime import datetime, timedelta


class Statistics(msgspec.Struct, frozen=True):
    """Outcomes, run times and wait times over one period: of a kind of job, a queue, or everything.

    ``queue`` and ``kind`` are None if the numbers are not grouped by them. ``at`` is when the period began, if there
    are several. ``runs`` counts those that succeeded or failed, which are timed; ``waits`` counts first runs, whose
    wait is from when the job was first due.
    """

    queue: str | None
    kind: str | None
    at: datetime | None
    succeeded: int
    failed: int
    lost: int
    snoozed: int
    released: int
    cancelled: int
    expired: int
    runs: int
    run_mean: timedelta | None
    run_max: timedelta | None
    run_p50: timedelta | None
    run_p95: timedelta | None
    run_p99: timedelta | None
    waits: int
    wait_mean: timedelta | None
    wait_max: timedelta | None
    wait_p50: timedelta | None
    wait_p95: timedelta | None
    wait_p99: timedelta | None


class Totals(msgspec.Struct, frozen=True):
    """Totals of one kind of job for all time, its last run, and its averages over the last hour, day and week."""

    queue: str
    kind: str
    succeeded: int
    failed: int
    lost: int
    snoozed: int
    released: int
    cancelled: int
    expired: int
    last_ended_at: datetime | None
    last_run: timedelta | None
    run_mean: timedelta | None
    run_hour: timedelta | None
    run_day: timedelta | None
    run_week: timedelta | None
    wait_mean: timedelta | None
    wait_hour: timedelta | None
    wait_day: timedelta | None
    wait_week: timedelta | None
    run_total: timedelta
    run_max: timedelta | None


class Counters(msgspec.Struct, frozen=True):
    """Counters of one kind of job since the install: numbers that only rise.

    The buckets say how many runs, or waits for a first run, took up to 1.6 ms, then up to four times as long each; the
    thirteenth has the rest. Empty ones at the end are left out.
    """

    queue: str
    kind: str
    succeeded: int
    failed: int
    lost: int
    snoozed: int
    released: int
    cancelled: int
    expired: int
    run_seconds: float
    run_buckets: list[int]
    wait_seconds: float
    wait_buckets: list[int]


__all__ = ["Counters", "Statistics", "Totals"]
