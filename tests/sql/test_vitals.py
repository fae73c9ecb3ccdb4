"""What the fleet's metrics are made of, and what happens when a part cannot be read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import dibs
from dibs.metrics import Fleet, reading
from dibs.metrics.fleet import BUCKETS

if TYPE_CHECKING:
    import psycopg

    from dibs.testing import Clock
    from tests.conftest import Connect
    from tests.sql.conftest import Login

PARTS = ["depths", "workers_wanted", "counters", "vitals", "doctor"]


async def scraped(dsn: str) -> dict[tuple[Any, ...], float]:
    """Every sample of the page, by its name and the values of its labels in the order of their names."""
    async with dibs.AsyncClient(dsn, pool_size=2) as client:
        text = (await Fleet(client).page()).body
    return {
        (s.name, *(value for _, value in sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


async def test_a_part_that_cannot_be_read_takes_nothing_else_down(client: dibs.Client, login: Login) -> None:
    client.enqueue("mine", "k")
    client.enqueue("theirs", "k")
    read = await scraped(login("dibs_observer", queues=["mine"]).dsn)
    assert [part for part in PARTS if read["dibs_part_up", part]] == ["depths", "workers_wanted", "counters"]
    assert read["dibs_jobs", "mine", "ready"] == 1
    assert ("dibs_jobs", "theirs", "ready") not in read
    assert await scraped(login("dibs_producer").dsn) == {("dibs_part_up", part): 0 for part in PARTS}
    read = await scraped(login("dibs_observer").dsn)
    assert [read["dibs_part_up", part] for part in PARTS] == [1] * len(PARTS)


async def test_nobody_waits_for_what_takes_long_a_second_time_unless_it_is_stale(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def up(text: str) -> set[str]:
        return set(re.findall(r'dibs_part_up{part="(\w+)"} 1', text))

    monkeypatch.setattr(reading, "PERIOD", 0.0)
    async with dibs.AsyncClient(dsn) as client:
        whole = Fleet(client)
        assert up((await whole.page()).body) == set(PARTS)
        await client.close()
        # The depths are read each time; the others are good for a while.
        assert up((await whole.page()).body) == {*PARTS} - {"depths"}
        monkeypatch.setattr(reading, "STALE", 0)
        for part, _ in whole._parts:
            part._asked = float("-inf")
        assert up((await whole.page()).body) == set()
        whole.close()


def test_buckets_end_where_the_database_says(db: psycopg.Connection[Any]) -> None:
    ends = [17 + 8 * n for n in range(len(BUCKETS))]
    assert list(BUCKETS) == [
        pytest.approx(us / 1e6) for (us,) in db.execute("select dibs._bar_upper_us(unnest(%s::integer[]))", (ends,))
    ]
    bars = [1, 17, 18, 25, 26, 105, 106, 160]
    [(buckets,)] = db.execute(
        "select dibs._metric_buckets(dibs._histogram(%s, %s))", (bars, [1] * len(bars))
    ).fetchall()
    assert buckets == [2, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]


def test_the_horizon_the_dead_rows_and_the_late_are_measured(
    client: dibs.Client, db: psycopg.Connection[Any], connect: Connect, clock: Clock
) -> None:
    def measured(name: str, *labels: str) -> float | None:
        return next((v.value for v in client.stats.vitals() if (v.name, *v.labels) == (name, *labels)), None)

    assert measured("horizon_age_seconds") == 0
    other = connect()
    other.execute("begin isolation level repeatable read; select 1 from dibs.queue")
    client.queues.set("q")
    clock.move(3600)
    assert 3600 <= (measured("horizon_age_seconds") or 0) < 3700
    assert (measured("horizon_transactions") or 0) >= 1
    other.execute("rollback")
    client.schedules.set("often", dibs.NewJob(queue="q", kind="k"), interval=60)
    clock.move(600)
    assert 500 <= (measured("schedule_late_seconds", "often") or 0) <= 600
    client.limits.set(kind="k", concurrency=1)
    client.enqueue_many(dibs.NewJob(queue="q", kind="k") for _ in range(3))
    assert len(client.claim("q", 3)) == 1
    assert (measured("limit_used", "kind", "k"), measured("limit_blocked", "kind", "k")) == (1, 2)
