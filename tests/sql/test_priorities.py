"""Priorities: any whole number from -100 to 100, and a claim that looks at those its queue has had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dibs

if TYPE_CHECKING:
    import psycopg

    from tests.conftest import Connect


def known(db: psycopg.Connection[Any], queue: str = "q") -> list[int]:
    row = db.execute("select dibs._priorities(q) from dibs.queue as q where q.name = %s", (queue,)).fetchone()
    return row[0] if row else []


def test_the_whole_range_is_served_in_its_order(client: dibs.Client) -> None:
    for priority in (0, -100, 100, 5, -7, 42, 10):
        client.enqueue("q", str(priority), priority=priority)
    assert [job.priority for job in client.claim("q", 10)] == [100, 42, 10, 5, 0, -7, -100]


def test_a_newest_first_queue_and_groups_have_the_whole_range_too(client: dibs.Client) -> None:
    client.queues.set("new", newest_first=True)
    for priority in (-100, 100, 5):
        client.enqueue("new", "k", priority=priority)
        client.enqueue("grouped", "k", priority=priority, group="acme")
    assert [job.priority for job in client.claim("new", 10)] == [100, 5, -100]
    assert [job.priority for job in client.claim("grouped", 10)] == [100, 5, -100]


def test_a_queue_knows_only_the_priorities_its_jobs_have_had(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.enqueue_many(dibs.NewJob(queue="q") for _ in range(10))
    assert known(db) == [5]
    client.enqueue("q", "k", priority=70)
    client.enqueue("q", "k", priority=70)
    assert known(db) == [70, 5]
    assert db.execute("select count(*) from dibs.queue_priority").fetchone() == (1,)


def test_jobs_of_the_old_default_are_found_after_it_was_changed(
    client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    client.enqueue("q", "old")
    client.queues.set("q", priority=-3)
    client.enqueue("q", "new")
    assert known(db) == [5, -3]
    assert [job.kind for job in client.claim("q", 10)] == ["old", "new"]


def test_shards_follow_a_changed_default(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.queues.set("q", shards=2)
    client.enqueue_many(dibs.NewJob(queue="q", shard_key=str(n)) for n in range(20))
    client.queues.set("q", priority=9)
    client.enqueue_many(dibs.NewJob(queue="q", shard_key=str(n)) for n in range(20))
    assert client.queues.depth("q").ready == 40
    [(worker,)] = db.execute("select worker from dibs.register_worker('w')").fetchall()
    held = [hold.name for hold in client.upkeep.hold_shards(worker, "q") if hold.name]
    taken = client.claim(held, 100, worker=worker)
    assert len(taken) == 40


def test_producers_with_a_new_priority_do_not_wait_for_each_other(connect: Connect) -> None:
    one, other, claimer = connect(), connect(), connect()
    claimer.execute("select dibs.set_queue('q')")
    for conn in (one, other):
        conn.execute("begin isolation level repeatable read")
        conn.execute("set local lock_timeout = '2s'")
        conn.execute("select dibs.enqueue('q', 'k', priority => 33)")
    other.execute("commit")
    assert len(claimer.execute("select * from dibs.claim('{q}', 10)").fetchall()) == 1
    one.execute("commit")
    assert len(claimer.execute("select * from dibs.claim('{q}', 10)").fetchall()) == 1


def test_a_priority_that_was_rolled_back_is_not_known(connect: Connect) -> None:
    producer = connect()
    producer.execute("select dibs.set_queue('q')")
    producer.execute("begin")
    producer.execute("select dibs.enqueue('q', 'k', priority => 8)")
    producer.execute("rollback")
    assert known(producer) == [5]


def test_sidelined_jobs_wait_behind_the_lowest_priorities(client: dibs.Client) -> None:
    client.queues.set("q", max_depth=1, when_full="sideline")
    client.enqueue("q", "first", priority=-99)
    assert client.enqueue("q", "aside", priority=100).outcome == "sidelined"
    assert [job.kind for job in client.claim("q", 10)] == ["first", "aside"]
