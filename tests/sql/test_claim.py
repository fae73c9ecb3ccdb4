"""Claims: each job to one claimer, by priority and time, and nothing in front of it."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import dibs

if TYPE_CHECKING:
    from uuid import UUID

    from dibs.testing import Clock
    from tests.conftest import Connect


def test_sixteen_claimers_get_each_job_once(dsn: str, client: dibs.Client) -> None:
    made = client.enqueue_many(dibs.NewJob(queue="q", payload=n) for n in range(20_000))
    together = threading.Barrier(16)

    def drain() -> list[UUID]:
        mine: list[UUID] = []
        with psycopg.connect(dsn, autocommit=True) as conn:
            together.wait()
            while rows := conn.execute("select id, token from dibs.claim('{q}', 37)").fetchall():
                mine += [id for id, _ in rows]
                ids, tokens = zip(*rows, strict=True)
                conn.execute("select from dibs.complete_many(%s, %s)", (list(ids), list(tokens)))
        return mine

    with ThreadPoolExecutor(16) as pool:
        claimed = Counter(id for mine in pool.map(lambda _: drain(), range(16)) for id in mine)
    left = client.claim("q", 1000)
    assert claimed.keys() | {job.id for job in left} == {m.id for m in made}
    assert set(claimed.values()) == {1}
    assert left == []


def test_order_is_priority_then_due_time(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    later = client.enqueue("q", "later", delay=5)
    low = client.enqueue("q", "low", priority=0)
    first = client.enqueue("q", "first")
    second = client.enqueue("q", "second")
    high = client.enqueue("q", "high", priority=10)
    clock.move(6)
    assert [j.id for j in client.claim("q", 10)] == [high.id, first.id, second.id, later.id, low.id]


def test_several_queues_share_one_claim_by_priority(client: dibs.Client) -> None:
    client.enqueue("a", "k", priority=3)
    high = client.enqueue("b", "k", priority=8)
    [job] = client.claim(["a", "b", "not-there"], 1)
    assert (job.id, job.queue) == (high.id, "b")
    assert [j.queue for j in client.claim(["a", "b"], 10)] == ["a"]


def test_a_claim_takes_no_more_than_asked_and_locks_no_more(connect: Connect, client: dibs.Client) -> None:
    client.enqueue_many(dibs.NewJob(queue="q") for _ in range(100))
    one, other = connect(), connect()
    with one.transaction():
        assert len(one.execute("select * from dibs.claim('{q}', 30)").fetchall()) == 30
        # What the first did not take, the second can take while the first is still open.
        assert len(other.execute("select * from dibs.claim('{q}', 100)").fetchall()) == 70


def test_scheduled_and_expired_jobs_are_not_handed_out(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    client.enqueue("q", "scheduled", delay=60)
    client.enqueue("q", "brief", ttl=10)
    client.enqueue("q", "dated", ttl=timedelta(hours=1))
    clock.move(30)
    assert [j.kind for j in client.claim("q", 10)] == ["dated"]
    clock.move(31)
    assert [j.kind for j in client.claim("q", 10)] == ["scheduled"]


def test_live_rows_in_front_cost_a_claim_nothing(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    """Rows that are hidden or not due yet are not in a claim's way."""
    client.enqueue("q", "due")
    db.execute(
        "insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring)"
        " select dibs.make_id(), dibs.now() + interval '1 hour', 'infinity', 1, 0, 0, 0, 5, false"
        " from generate_series(1, 50000)"
    )
    read = "select idx_tup_read from pg_stat_user_indexes where indexrelname = 'ready_claim_idx'"
    db.execute("select pg_stat_force_next_flush()")
    before = db.execute(read).fetchone()
    assert len(db.execute("select id from dibs.claim('{q}', 10)").fetchall()) == 1
    db.execute("select pg_stat_force_next_flush()")
    after = db.execute(read).fetchone()
    assert before
    assert after
    assert after[0] - before[0] < 100


def test_a_paused_queue_hands_out_nothing(client: dibs.Client) -> None:
    client.enqueue("q", "k")
    assert client.queues.pause("q")
    assert client.claim("q") == []
    resumed = client.queues.resume("q")
    assert resumed.paused_at is not None
    assert len(client.claim("q")) == 1


def test_the_lease_is_the_policys_the_jobs_or_the_callers(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    client.queues.set("q", lease=60, lease_growth=2, lease_cap=200, backoff=dibs.constant(0))
    client.enqueue("q", "own", lease=7, lease_growth=3, priority=9)
    client.enqueue("q", "policy")
    lengths: dict[str, list[float]] = {"own": [], "policy": []}
    for _ in range(4):
        for job in client.claim("q", 2):
            lengths[job.kind].append((job.lease_until - job.claimed_at).total_seconds())
            client.fail(job)
    assert lengths == {"own": [7, 21, 63, 189], "policy": [60, 120, 200, 200]}
    [job] = client.claim("q", 1, lease=5)
    assert (job.lease_until - job.claimed_at).total_seconds() == 5


def test_the_lease_counts_from_the_clock_not_from_the_transaction(connect: Connect, client: dibs.Client) -> None:
    """A lease counted from now() in a long transaction would be born expired."""
    client.enqueue("q", "k")
    conn = connect()
    with conn.transaction():
        conn.execute("select pg_sleep(0.2)")
        row = conn.execute(
            "select lease_until - clock_timestamp(), lease_until - now() from dibs.claim('{q}')"
        ).fetchone()
    assert row
    assert timedelta(seconds=29.9) < row[0] < row[1]
    assert row[1] > timedelta(seconds=30.2)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_claim_refuses_an_older_snapshot(connect: Connect, level: str) -> None:
    conn = connect()
    conn.execute(f"begin isolation level {level}")
    with pytest.raises(psycopg.DatabaseError) as raised:
        conn.execute("select * from dibs.claim('{q}')")
    assert raised.value.sqlstate == "DI020"


def test_bad_claims_are_refused_with_a_reason(client: dibs.Client) -> None:
    with pytest.raises(dibs.InvalidArgument, match="names of 1 to 10000 queues"):
        client.claim([])
    with pytest.raises(dibs.InvalidArgument, match="1 to 10000"):
        client.claim("q", 0)
    with pytest.raises(dibs.InvalidArgument, match="100 ms to 7 days"):
        client.claim("q", lease=timedelta(days=8))
