"""One puller at a time: exclusive queues and shards, who holds them, and who may not claim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import psycopg
import pytest

import dibs

if TYPE_CHECKING:
    from dibs.testing import Clock
    from tests.conftest import Connect


def workers(db: psycopg.Connection[Any], count: int) -> list[UUID]:
    made = [db.execute("select worker from dibs.register_worker('w')").fetchone() for _ in range(count)]
    return [row[0] for row in made if row]


def names(client: dibs.Client, worker: UUID, queue: str = "q", *, waiting: bool = False) -> list[str]:
    """What a worker may claim from, or holds but may not claim from yet."""
    return [h.name for h in client.upkeep.hold_shards(worker, queue) if h.name and h.claimable is not waiting]


def settle(client: dibs.Client, these: list[UUID], queue: str = "q") -> dict[UUID, list[str]]:
    """What each holds after everybody has asked often enough."""
    for _ in range(2):
        for worker in these:
            client.upkeep.hold_shards(worker, queue)
    return {worker: names(client, worker, queue) for worker in these}


def test_an_exclusive_queue_is_pulled_by_its_holder_alone(
    client: dibs.Client, db: psycopg.Connection[Any], clock: Clock
) -> None:
    clock.freeze()
    client.queues.set("q", exclusive=True, shard_lease=10)
    one, two = workers(db, 2)
    client.enqueue("q", "k")
    with pytest.raises(dibs.errors.ShardNotHeld, match="client that is no worker"):
        client.claim("q")
    assert names(client, one) == ["q"]
    assert names(client, two) == []
    with pytest.raises(dibs.errors.ShardNotHeld, match="worker 2 does not hold 'q'"):
        client.claim("q", worker=two)
    [job] = client.claim("q", worker=one)
    client.complete(job)
    clock.move(9)
    assert names(client, one) == ["q"], "renewed"
    clock.move(9)
    assert names(client, two) == []
    clock.move(1)
    with pytest.raises(dibs.errors.ShardNotHeld):
        client.claim("q", worker=one)
    assert names(client, two) == ["q"]
    assert names(client, one) == []


def test_jobs_of_one_key_go_to_one_shard(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.queues.set("q", shards=8)
    client.enqueue_many(dibs.NewJob(queue="q", kind=str(n % 40), shard_key=str(n % 40)) for n in range(400))
    rows = db.execute("select kind, queue, array_agg(distinct shard), count(*) from dibs.jobs group by 1, 2").fetchall()
    assert len(rows) == 40
    assert all(queue == "q" and len(shards) == 1 and count == 10 for _, queue, shards, count in rows)
    assert {shards[0] for _, _, shards, _ in rows} == set(range(8))
    assert client.queues.depth("q").ready == 400
    again = [client.enqueue("q", "k", dedup_key="d").outcome for _ in range(2)]
    assert again == ["enqueued", "duplicate"], "a dedup key is a shard key where there is no other"
    assert [q.name for q in client.queues.list()] == ["q"]
    with pytest.raises(dibs.errors.InvalidPolicy, match="without #"):
        client.enqueue("q#1", "k")
    with pytest.raises(dibs.errors.InvalidPolicy, match="without #"):
        client.queues.set("q#1")


def test_shards_are_shared_out_evenly_as_workers_come_and_go(
    client: dibs.Client, db: psycopg.Connection[Any], clock: Clock
) -> None:
    clock.freeze()
    client.queues.set("q", shards=8, shard_lease=10)
    four = workers(db, 4)
    assert len(settle(client, four[:1])[four[0]]) == 8
    held = settle(client, four)
    assert sorted(len(n) for n in held.values()) == [2, 2, 2, 2]
    assert len({name for n in held.values() for name in n}) == 8
    client.upkeep.release_shards(four[3])
    held = settle(client, four[:3])
    assert sorted(len(n) for n in held.values()) == [2, 3, 3]
    clock.move(6)
    settle(client, four[:2])
    clock.move(6)  # the third has not renewed
    held = settle(client, four[:2])
    assert sorted(len(n) for n in held.values()) == [4, 4]
    nine = workers(db, 9)
    held = settle(client, four[:2] + nine)
    assert sorted(len(n) for n in held.values()) == [0] * 3 + [1] * 8


def test_runs_of_a_dead_holder_are_lost_at_once(client: dibs.Client, db: psycopg.Connection[Any], clock: Clock) -> None:
    clock.freeze()
    client.queues.set("q", exclusive=True, shard_lease=10, lease=3600)
    one, two = workers(db, 2)
    names(client, one)
    made = client.enqueue("q", "k")
    [old] = client.claim("q", worker=one)
    clock.move(11)
    assert names(client, two) == ["q"], "within the shard's lease, not the job's"
    [new] = client.claim("q", worker=two)
    assert (new.id, new.losses, new.run) == (made.id, 1, 2)
    with pytest.raises(dibs.LeaseLost):
        client.complete(old)
    client.complete(new)


def test_a_shard_that_is_handed_over_waits_for_its_runs(
    client: dibs.Client, db: psycopg.Connection[Any], clock: Clock
) -> None:
    clock.freeze()
    client.queues.set("q", shards=2, shard_lease=10)
    one, two = workers(db, 2)
    names(client, one)
    client.enqueue_many(dibs.NewJob(queue="q", kind="k", shard_key=str(n)) for n in range(20))
    running = client.claim(["q", "q#1"], 20, worker=one)
    names(client, two)
    mine = names(client, one)
    assert len(mine) == 1
    assert names(client, two) == []
    [waits] = names(client, two, waiting=True)
    with pytest.raises(dibs.errors.ShardNotHeld):
        client.claim(waits, worker=two)
    with pytest.raises(dibs.errors.ShardNotHeld):
        client.claim(waits, worker=one)
    client.complete_many(running)
    assert names(client, two) == [waits]
    assert [job.run for job in running] == [1] * 20, "none was lost"


def test_a_claim_keeps_its_shard_until_it_is_committed(
    client: dibs.Client, connect: Connect, db: psycopg.Connection[Any], clock: Clock
) -> None:
    clock.freeze()
    client.queues.set("q", exclusive=True, shard_lease=10)
    one, two = workers(db, 2)
    names(client, one)
    client.enqueue("q", "k")
    slow = connect()
    with slow.transaction():
        slow.execute("select dibs.claim('{q}', 1, %s)", (one,))
        assert names(client, one) == ["q"], "a renewal does not wait for a claim"
        clock.move(11)
        assert names(client, two) == [], "nobody takes it over while a claim of its holder is going on"
    assert names(client, two) == ["q"]
    assert client.claim("q", worker=two)[0].losses == 1


def test_a_holder_in_a_stuck_transaction_is_waited_for(
    client: dibs.Client, connect: Connect, db: psycopg.Connection[Any], clock: Clock
) -> None:
    clock.freeze()
    client.queues.set("q", exclusive=True, shard_lease=10)
    one, two = workers(db, 2)
    names(client, one)
    client.enqueue("q", "k")
    [job] = client.claim("q", worker=one)
    slow = connect()
    with slow.transaction():
        slow.execute("select dibs.complete(%s, %s)", (job.id, job.token))
        clock.move(11)
        assert names(client, two) == []
        assert names(client, two, waiting=True) == ["q"]
    assert names(client, two) == ["q"]
    assert client.status(job.id).state is dibs.State.SUCCEEDED


def test_a_queue_and_its_shards_have_one_policy(client: dibs.Client, db: psycopg.Connection[Any], clock: Clock) -> None:
    client.queues.set("q", shards=4, lease=77)
    client.queues.set("q", max_attempts=1, ttl=None)
    client.queues.pause("q")
    own = {"id", "name", "created_at", "shards", "shard_of", "shard"}
    rows = [row[0] for row in db.execute("select to_jsonb(q) from dibs.queue as q order by id").fetchall()]
    assert [row["name"] for row in rows] == ["q", "q#1", "q#2", "q#3"]
    for row in rows[1:]:
        assert {k: v for k, v in row.items() if k not in own} == {k: v for k, v in rows[0].items() if k not in own}
    assert rows[1]["paused_at"]
    [one] = workers(db, 1)
    client.enqueue_many(dibs.NewJob(queue="q", kind="k", ttl=5) for _ in range(40))
    held = names(client, one)
    assert client.claim(held, 100, worker=one) == []
    clock.move(10)
    assert client.queues.resume("q", extend=60).extended == 40
    jobs = client.claim(held, 100, worker=one)
    assert len(jobs) == 40
    for job in jobs:
        client.fail(job, "no")
    assert client.queues.depth("q").exhausted == 40
    assert client.retry({"queue": "q"}).done == 40


def test_the_number_of_shards_may_change_and_nothing_is_stranded(
    client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    client.enqueue_many(dibs.NewJob(queue="q", kind="k") for _ in range(10))
    client.queues.set("q", shards=6)
    client.enqueue_many(dibs.NewJob(queue="q", kind="k") for _ in range(60))
    client.queues.set("q", shards=2)
    client.enqueue_many(dibs.NewJob(queue="q", kind="k") for _ in range(10))
    [one] = workers(db, 1)
    held = names(client, one)
    assert len(held) == 6, "those it no longer has are served as long as something lies there"
    client.complete_many(client.claim(held, 100, worker=one))
    assert client.queues.depth("q").ready == 0
    assert sorted(names(client, one)) == ["q", "q#1"]
    with pytest.raises(dibs.errors.StillSharded):
        client.queues.set("q", shards=None)
    client.queues.set("q", exclusive=True)
    client.queues.set("p", exclusive=True)
    client.queues.set("p", exclusive=False)
    client.enqueue("p", "k")
    assert len(client.claim("p")) == 1, "what never had shards is ordinary again"


def test_shards_above_a_lowered_number_are_released(
    client: dibs.Client, db: psycopg.Connection[Any], clock: Clock
) -> None:
    """Also by a worker that holds no more than its quota of them: it has to take needed ones instead."""
    clock.freeze()
    client.queues.set("q", shards=8, shard_lease=10)
    one, two = workers(db, 2)
    settle(client, [one])
    held = settle(client, [one, two])
    assert sorted(len(n) for n in held.values()) == [4, 4]
    client.queues.set("q", shards=4)
    held = settle(client, [one, two])
    assert sorted(name for n in held.values() for name in n) == ["q", "q#1", "q#2", "q#3"]
    assert sorted(len(n) for n in held.values()) == [2, 2]


def test_a_hold_that_ran_out_above_a_lowered_number_makes_nobody_ask_at_once(
    client: dibs.Client, db: psycopg.Connection[Any], clock: Clock
) -> None:
    clock.freeze()
    client.queues.set("q", shards=8, shard_lease=30)
    one, two = workers(db, 2)
    settle(client, [one])
    settle(client, [one, two])
    client.queues.set("q", shards=1)
    clock.move(31)  # The second worker is dead.
    settle(client, [one])
    assert [h.again for h in client.upkeep.hold_shards(one, "q")] == [10]


def test_a_lost_run_whose_lease_was_locked_ends_with_the_next_call(
    client: dibs.Client, connect: Connect, db: psycopg.Connection[Any], clock: Clock
) -> None:
    clock.freeze()
    client.queues.set("q", exclusive=True, shard_lease=10, lease=3600)
    one, two = workers(db, 2)
    names(client, one)
    client.enqueue("q", "k")
    [job] = client.claim("q", worker=one)
    slow = connect()
    with slow.transaction():
        slow.execute("select dibs.extend(%s, %s)", (job.id, job.token))
        clock.move(11)
        assert names(client, two, waiting=True) == ["q"]
    assert names(client, two) == ["q"]
    [again] = client.claim("q", worker=two)
    assert (again.id, again.losses) == (job.id, 1)


def test_a_worker_is_known_by_a_secret_that_nobody_else_sees(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    """A number can be guessed: anyone who said it could retire the worker, take its shards or claim in its place."""
    client.queues.set("q", exclusive=True)
    client.enqueue("q", "k")
    one, two = workers(db, 2)
    assert names(client, one) == ["q"]
    with pytest.raises(dibs.errors.ShardNotHeld):
        client.claim("q", worker=two)
    assert client.upkeep.release_shards(two) == 0
    assert names(client, one) == ["q"]
    for verb in ("claim('{q}', worker => %s)", "hold_shards(%s, '{q}')", "release_shards(%s)", "beat_worker(%s)"):
        with pytest.raises(psycopg.Error) as refused:
            db.execute(f"select dibs.{verb}", (uuid4(),))
        assert refused.value.sqlstate == "DI014", verb
        with pytest.raises(psycopg.errors.UndefinedFunction):
            db.execute(f"select dibs.{verb}", (1,))
    views = db.execute("select viewname from pg_views where schemaname = 'dibs'").fetchall()
    for (view,) in views:
        assert str(one) not in str(db.execute(f"select to_jsonb(v) from dibs.{view} as v").fetchall()), view


def test_ordinary_queues_are_answered_as_they_are(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.queues.set("q", exclusive=True)
    [one] = workers(db, 1)
    holds = client.upkeep.hold_shards(one, ["mail", "q"])
    assert [(h.name, h.shard, h.claimable) for h in holds] == [("mail", None, True), ("q", 0, True)]
    assert client.upkeep.release_shards(one) == 1
    with pytest.raises(dibs.errors.UnknownWorker):
        client.upkeep.hold_shards(uuid4(), "q")
    with pytest.raises(dibs.InvalidArgument):
        client.upkeep.hold_shards(one, [])
    with pytest.raises(dibs.errors.InvalidPolicy, match="256"):
        client.queues.set("q", shards=257)


def test_why_and_the_view_say_who_pulls(client: dibs.Client, db: psycopg.Connection[Any], clock: Clock) -> None:
    client.queues.set("q", exclusive=True, shard_lease=10)
    made = client.enqueue("q", "k")
    assert "none does now" in client.why(made.id)
    [one] = workers(db, 1)
    names(client, one)
    assert "only worker 1 pulls from there" in client.why(made.id)
    [shard] = client.queues.shards("q")
    assert (shard.queue, shard.shard, shard.worker, shard.held, shard.claimable) == ("q", 0, 1, True, True)
    clock.move(20)
    [shard] = client.queues.shards("q")
    assert (shard.held, shard.claimable) == (False, False)


def test_statistics_are_of_the_whole_queue(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.queues.set("q", shards=4)
    [one] = workers(db, 1)
    client.enqueue_many(dibs.NewJob(queue="q", kind="k") for _ in range(40))
    client.complete_many(client.claim(names(client, one), 100, worker=one))
    client.upkeep.roll_up()
    [told] = client.stats.totals("q")
    assert told.succeeded == 40
    assert db.execute("select distinct queue from dibs.attempts").fetchall() == [("q",)]
