"""Claimed jobs read their ids and times when they are asked for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from dibs.job import read_time, write_time

if TYPE_CHECKING:
    import psycopg

    import dibs


@pytest.mark.parametrize(
    "time",
    [
        datetime(2026, 3, 29, 2, 30, 0, 123456, tzinfo=UTC),
        datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-5))),
    ],
)
def test_times_go_there_and_back(time: datetime) -> None:
    assert read_time(write_time(time)) == time


def test_a_claimed_job_has_what_the_database_says(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    deadline = datetime(2100, 1, 1, tzinfo=UTC)
    made = client.enqueue("q", "k", {"n": 1}, deadline=deadline)
    [job] = client.claim("q", lease=90)
    [row] = db.execute("select due_at, claimed_at, lease_until from dibs.lease").fetchall()
    assert (job.id, job._key, job.deadline) == (made.id, made.id.bytes, deadline)
    assert (job.due_at, job.claimed_at, job.lease_until) == row
    assert job.lease == 90
    assert job.waited == (job.claimed_at - job.due_at).total_seconds()
    assert str(made.id) in repr(job)
