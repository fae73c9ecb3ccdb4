"""Backpressure: full queues refuse or sideline, newest-first queues are served from their end, ages are told apart."""

from __future__ import annotations

import math
import random
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import dibs
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from dibs.testing import Clock
    from tests.conftest import Connect

NEWEST = "select dibs.set_queue('q', '{\"newest_first\": true}')"


def fill(client: dibs.Client, count: int, **options: Any) -> Sequence[dibs.types.Enqueued]:
    return client.enqueue_many(dibs.NewJob(queue="q", payload=n, **options) for n in range(count))


def payloads(db: psycopg.Connection[Any], count: int = 1) -> list[Any]:
    return [row[0] for row in db.execute("select payload from dibs.claim('{q}', %s)", (count,)).fetchall()]


# Depth and age


def test_a_full_queue_refuses_and_takes_again_when_there_is_room(client: dibs.Client) -> None:
    client.queues.set("q", max_depth=3)
    fill(client, 2)
    with pytest.raises(dibs.QueueFull, match="2 jobs wait, at most 3 may, and this call brings 2 more") as raised:
        fill(client, 2)
    assert raised.value.sqlstate == "DI041"
    assert client.queues.depth("q").ready == 2, "all or none"
    assert client.enqueue("q", "k").is_new
    with pytest.raises(dibs.QueueFull):
        client.enqueue("q", "k", delay=60)
    client.complete(client.claim("q")[0])
    wait_until(lambda: succeeds(client), what="there is room again")
    client.queues.set("q", max_depth=None)
    fill(client, 10)


def test_a_queue_is_full_by_its_depth_although_no_job_is_due(client: dibs.Client) -> None:
    client.queues.set("q", max_depth=1, max_age=60)
    fill(client, 1, delay=3600)
    with pytest.raises(dibs.QueueFull, match="1 jobs wait, at most 1 may"):
        fill(client, 1, delay=3600)


def pressure_of(db: psycopg.Connection[Any], queue: str) -> str:
    """The setting in which a connection remembers how full a queue is."""
    row = db.execute("select 'dibs.pressure_' || id from dibs.queue where name = %s", (queue,)).fetchone()
    assert row
    return str(row[0])


def test_what_a_session_claims_to_remember_fills_no_queue(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    """A bound rests on nothing that a producer can set: not on a switch, and not on what its session remembers."""
    client.queues.set("q", max_depth=3)
    client.queues.set("empty", max_depth=100_000)
    fill(client, 3)
    many = "select count(*) from dibs.enqueue_many((select jsonb_agg(jsonb_build_object('queue','q','kind','k'))"
    many += " from generate_series(1, 500)))"
    [(ahead,)] = db.execute("select dibs._micros(clock_timestamp()) + 50000000").fetchall()
    forged = f"({ahead},-100000,)"
    db.execute("select dibs.enqueue('empty', 'k')")
    [(other,)] = db.execute("select current_setting(%s)", (pressure_of(db, "empty"),)).fetchall()
    for name, value in [
        ("dibs.follow_ups", "on"),
        (pressure_of(db, "q"), forged),
        (pressure_of(db, "q"), db.execute("select hashtextextended(%s, 20001)", (forged,)).fetchall()[0][0]),
        (pressure_of(db, "q"), other),
    ]:
        sealed = f"{value}:{forged}" if isinstance(value, int) else value
        db.execute("select set_config(%s, %s, false)", (name, sealed))
        with pytest.raises(psycopg.Error) as refused:
            db.execute(many)
        assert refused.value.sqlstate == "DI041", name
    assert client.queues.depth("q").ready == 3


def succeeds(client: dibs.Client) -> bool:
    try:
        return client.enqueue("q", "k").is_new
    except dibs.QueueFull:
        return False


def test_a_duplicate_a_repeat_and_a_replacement_fit_into_a_full_queue(
    client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    client.queues.set("q", max_depth=2)
    row = db.execute("select dibs.make_id()").fetchone()
    assert row
    client.enqueue("q", "k", id=row[0])
    held = client.enqueue("q", "k", dedup_key="same")
    assert client.enqueue("q", "k", id=row[0]) == dibs.types.Enqueued(row[0], dibs.Answer.DUPLICATE)
    assert client.enqueue("q", "k", dedup_key="same") == dibs.types.Enqueued(held.id, dibs.Answer.DUPLICATE)
    assert client.enqueue("q", "k", dedup_key="same", on_duplicate="replace").outcome == "replaced"
    with pytest.raises(dibs.QueueFull):
        client.enqueue("q", "k")


def test_what_comes_back_and_follow_ups_are_always_taken(client: dibs.Client) -> None:
    """The queue accepted the work before: refusing it now would lose it."""
    client.queues.set("q", max_depth=1)
    client.enqueue("q", "k")
    [job] = client.claim("q")
    wait_until(lambda: succeeds(client), what="there is room again")
    client.fail(job, delay=0)
    jobs = client.claim("q", 2, wait=5)
    assert client.complete(jobs[0], follow_ups=[dibs.NewJob(queue="q"), dibs.NewJob(queue="q")]) == "ok"
    client.fail(jobs[1], final=True)
    assert client.retry({"ids": [jobs[1].id]}).done == 1
    assert client.queues.depth("q").ready == 3


def test_a_queue_whose_oldest_job_is_too_old_is_full(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    client.queues.set("q", max_age=60)
    client.enqueue("q", "k", delay=30)
    clock.move(89)
    assert client.enqueue("q", "k").is_new
    clock.move(2)
    with pytest.raises(dibs.QueueFull, match="due for 00:01:01, and at most 00:01:00"):
        client.enqueue("q", "k")
    client.complete(client.claim("q")[0])
    wait_until(lambda: succeeds(client), what="the next oldest is young")


def test_sidelined_jobs_wait_behind_all_others(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.queues.set("q", max_depth=2, when_full="sideline")
    assert [m.outcome for m in fill(client, 2)] == ["enqueued"] * 2
    aside = client.enqueue("q", "k", "aside", priority=9)
    assert (aside.outcome, aside.is_new) == ("sidelined", True)
    assert payloads(db) == [0]
    wait_until(lambda: client.enqueue("q", "k", "fresh").outcome == "enqueued", what="what is aside is not counted")
    told = payloads(db, 10)
    while "aside" not in told:
        told += payloads(db, 10)
    assert told[0] == 1
    assert told.index("fresh") < told.index("aside")


def test_a_queue_without_bounds_measures_nothing(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    db.execute("select dibs.enqueue('q', 'k')")
    assert db.execute("select current_setting('dibs.pressure_1', true)").fetchone() in {(None,), ("",)}


def test_a_made_up_measurement_is_not_believed(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.queues.set("q", max_depth=1)
    db.execute("select dibs.enqueue('q', 'k')")
    for lie in ("", "1:(9794743790678413,0,)", "nonsense"):
        db.execute("select set_config('dibs.pressure_1', %s, false)", (lie,))
        with pytest.raises(psycopg.DatabaseError) as raised:
            db.execute("select dibs.enqueue('q', 'k')")
        assert raised.value.sqlstate == "DI041"


@pytest.mark.parametrize(
    "policy", [{"max_depth": 0}, {"max_depth": 10**9}, {"max_age": 0}, {"when_full": "drop"}, {"when_full": None}]
)
def test_bad_bounds_are_refused(shared_client: dibs.Client, policy: Any) -> None:
    with pytest.raises(dibs.errors.Refused):
        shared_client.queues.set("q", **policy)


def test_measuring_a_large_queue_takes_a_twentieth_of_the_time(
    client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    """20,000 jobs, counted in an index; the answer is believed for longer than counting takes."""
    client.queues.set("q", max_depth=50_000)
    fill(client, 20_000)
    db.execute("select dibs.enqueue('q', 'k')")
    row = db.execute("select current_setting('dibs.pressure_1')").fetchone()
    assert row
    good_until, waiting, _ = row[0].split("(")[1].split(",")
    assert int(waiting) == 20_001
    assert int(good_until) / 1e6 > time.time(), "counted again only when that is paid off"


def test_the_most_expensive_measurement_is_believed_as_well(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    """A count is believed for a minute: otherwise each enqueue into a queue of 20 million jobs would count them."""
    client.queues.set("q", max_depth=50_000)
    db.execute("create or replace function dibs._cooldown(took bigint) returns bigint language sql return 600000000")
    told: list[tuple[str, str]] = []
    for _ in range(4):
        db.execute("select dibs.enqueue('q', 'k')")
        [(body,)] = db.execute("select current_setting('dibs.pressure_1')").fetchall()
        good_until, waiting, _ = body.split("(")[1].split(",")
        told.append((good_until, waiting))
    assert [waiting for _, waiting in told] == ["1", "2", "3", "4"]
    assert len({good_until for good_until, _ in told[1:]}) == 1


def test_a_sharded_queue_is_bounded_and_deduplicated_as_one(client: dibs.Client) -> None:
    client.queues.set("q", shards=4, max_depth=8)
    first = client.enqueue("q", "k", shard_key="a", dedup_key="same")
    for n in range(7):
        again = client.enqueue("q", "k", shard_key=f"other {n}", dedup_key="same")
        assert again == dibs.types.Enqueued(first.id, dibs.Answer.DUPLICATE)
        client.enqueue("q", "k", shard_key=str(n))
    with pytest.raises(dibs.QueueFull, match="queue 'q' is full: 8 jobs wait"):
        client.enqueue("q", "k")
    assert client.queues.drain_estimate("q").waiting == 8
    assert client.cancel_key("q", "same") == dibs.types.Answered(first.id, dibs.Answer.CANCELLED)
    client.queues.set("q", when_full="sideline", max_depth=1)
    assert client.enqueue("q", "k").outcome == "sidelined"


# Newest first


def test_the_latest_due_is_served_first_within_its_priority(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    client.queues.set("q", newest_first=True)
    for n in range(6):
        client.enqueue("q", "k", n, priority=[5, 5, 9][n % 3])
        clock.move(1)
    client.enqueue("q", "k", "later", delay=60, priority=10)
    assert [job.payload for job in client.claim("q", 3)] == [5, 2, 4]
    clock.move(61)
    client.enqueue("q", "k", "fresh")
    assert [job.payload for job in client.claim("q", 10)] == ["later", "fresh", 3, 1, 0]
    assert client.claim("q") == []


def test_why_counts_what_is_newer(client: dibs.Client) -> None:
    client.queues.set("q", newest_first=True)
    first, _, last = fill(client, 3)
    assert "2 jobs are ahead" in client.why(first.id)
    assert "nothing is ahead" in client.why(last.id)


def test_both_orders_in_one_claim_and_neither_starves(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.queues.set("new", newest_first=True)
    for queue in ("old", "new"):
        client.enqueue_many(dibs.NewJob(queue=queue, payload=n) for n in range(50))
    served: dict[str, list[int]] = {"old": [], "new": []}
    for _ in range(50):
        for queue, n in db.execute("select queue, payload from dibs.claim('{old,new}')").fetchall():
            served[queue].append(n)
    assert len(served["old"]) + len(served["new"]) == 50
    assert min(map(len, served.values())) > 5
    assert served["old"] == sorted(served["old"])
    assert served["new"] == sorted(served["new"], reverse=True)


def test_a_random_history_hands_out_every_job_once_and_the_newest_of_what_it_sees(
    connect: Connect, clock: Clock
) -> None:
    """Enqueues, claims, releases and retries at random, by two claimers, each with its own holes."""
    clock.freeze()
    db = connect()
    db.execute(NEWEST)
    claimers = [connect(), connect()]
    chance = random.Random(7)
    waiting: set[UUID] = set()
    for _ in range(250):
        act = chance.random()
        if act < 0.5:
            for _ in range(chance.randint(1, 5)):
                row = db.execute(
                    "select job_id from dibs.enqueue('q', 'k', priority => %s)", (chance.choice([3, 5]),)
                ).fetchone()
                assert row
                waiting.add(row[0])
        elif act < 0.9:
            claimer = chance.choice(claimers)
            rows = claimer.execute(
                "select id, token, priority, due_at from dibs.claim('{q}', %s)", (chance.randint(1, 6),)
            ).fetchall()
            assert {row[0] for row in rows} <= waiting
            order = [(row[2], row[3], row[0]) for row in rows]
            assert order == sorted(order, reverse=True)
            for id, token, _, _ in rows:
                if chance.random() < 0.2:
                    claimer.execute("select dibs.release(%s, %s)", (id, token))
                else:
                    claimer.execute("select dibs.complete(%s, %s)", (id, token))
                    waiting.discard(id)
        clock.move(chance.choice([0, 0.05, 0.2, 1, 20]))
    end = time.monotonic() + 10
    while waiting:
        assert time.monotonic() < end, f"{len(waiting)} jobs were never handed out"
        for id, token in claimers[0].execute("select id, token from dibs.claim('{q}', 50)").fetchall():
            claimers[0].execute("select dibs.complete(%s, %s)", (id, token))
            waiting.discard(id)


def test_a_late_commit_in_a_hole_is_found_within_2_s(connect: Connect, clock: Clock) -> None:
    claimer, slow, producer = connect(), connect(), connect()
    producer.execute(NEWEST)
    slow.execute("begin")
    row = slow.execute("select job_id from dibs.enqueue('q', 'k')").fetchone()
    for _ in range(5):
        clock.move(5)
        producer.execute("select dibs.enqueue('q', 'k')")
        claimer.execute("select * from dibs.claim('{q}', 10)")
    slow.execute("commit")
    began = time.monotonic()
    wait_until(lambda: claimer.execute("select id from dibs.claim('{q}')").fetchall() == [row], what="it is found")
    assert time.monotonic() - began < 2


def test_a_clock_that_steps_back_hides_nothing(connect: Connect, clock: Clock) -> None:
    db = connect()
    clock.freeze()
    db.execute(NEWEST)
    db.execute("select dibs.enqueue('q', 'k')")
    clock.move(10)
    assert len(payloads(db, 10)) == 1
    clock.move(-5)
    db.execute("select dibs.enqueue('q', 'k', '\"back\"')")
    assert payloads(db) == ["back"]


def blocks_for_five(db: psycopg.Connection[Any]) -> float:
    """The blocks of memory that a claim of five jobs touches: the least of a few claims, as some of them look back."""
    least = math.inf
    for _ in range(5):
        row = db.execute("explain (analyze, buffers, format json) select * from dibs.claim('{q}', 5)").fetchone()
        assert row
        plan = row[0][0]["Plan"]
        assert plan["Actual Rows"] == 5
        least = min(least, plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
    return least


def test_with_the_horizon_pinned_a_newest_first_queue_does_not_slow_down(
    connect: Connect, client: dibs.Client, clock: Clock
) -> None:
    """The horizon is held back: an old backlog, and thousands of jobs that came and were taken on top of it."""
    db, pin = connect(), connect()
    db.execute(NEWEST)
    fill(client, 500)
    pin.execute("begin isolation level repeatable read")
    pin.execute("select pg_current_xact_id()")
    costs = []
    for _ in range(12):
        fill(client, 500)
        taken = 0
        while taken < 500:
            taken += len(payloads(db, 100))
        clock.move(1)  # A quick machine takes all of them within the time for which a claim looks again.
        costs.append(blocks_for_five(db))
    pin.execute("rollback")
    assert max(costs[-3:]) < 1.5 * max(costs[:3]), costs


# Ages and the end of a backlog


def test_the_age_of_what_never_ran_is_told_apart_from_retries(client: dibs.Client, clock: Clock) -> None:
    """An age that a retry resets, or a TTL that counts attempts alone, hides how long a backlog waits."""
    clock.freeze()
    made = client.enqueue("q", "k", ttl=1000)
    clock.move(100)
    client.fail(client.claim("q")[0], delay=0)
    clock.move(30)
    client.enqueue("q", "k")
    clock.move(7)
    depth = client.queues.depth("q")
    assert (depth.oldest_ready, depth.oldest_untried) == (timedelta(seconds=37), timedelta(seconds=7))
    [again, _] = client.claim("q", 2)
    client.complete(again)
    rows = client._run(
        dibs.db.calls.Call("select run, first_wait from dibs.attempts where id = %s order by run", (made.id,), list)
    )
    assert rows == [(1, timedelta(seconds=100)), (2, None)]


def test_a_backlog_that_waits_for_longer_than_its_attempts_would_take_still_runs(
    client: dibs.Client, clock: Clock
) -> None:
    """TTL counts from when a job is due, and however many attempts it has, waiting is not one of them."""
    clock.freeze()
    client.queues.set("q", lease=1, max_attempts=1, ttl=3600)
    fill(client, 3)
    fill(client, 1, delay=3000)
    clock.move(3599)
    assert client.upkeep.expire() == 0
    assert len(client.claim("q", 10)) == 4
    fill(client, 1, delay=3000)
    clock.move(3000 + 3599)
    assert client.upkeep.expire() == 0
    clock.move(1)
    assert client.upkeep.expire() == 1


def test_the_end_of_a_backlog_is_estimated(client: dibs.Client, clock: Clock, db: psycopg.Connection[Any]) -> None:
    many = "(select jsonb_agg(jsonb_build_object('queue', 'q', 'kind', 'k')) from generate_series(1, 300))"
    clock.freeze()
    client.queues.set("q")
    clock.move(600)
    assert client.queues.drain_estimate("q") == dibs.types.DrainEstimate(0, 0.0, 0.0, timedelta())
    db.execute(f"select from dibs.enqueue_many({many})")
    clock.move(300)
    client.complete_many(client.claim("q", 150))
    clock.move(1)
    got = client.queues.drain_estimate("q", 300)
    assert (got.waiting, got.arriving, got.leaving) == (150, 0.0, 0.5)
    assert got.drained_in == timedelta(seconds=300)
    db.execute(f"select from dibs.enqueue_many({many})")
    growing = client.queues.drain_estimate("q")
    assert (growing.waiting, growing.arriving, growing.drained_in) == (450, 1.0, None)
    with pytest.raises(dibs.errors.UnknownQueue):
        client.queues.drain_estimate("none")
    with pytest.raises(dibs.InvalidArgument):
        client.queues.drain_estimate("q", 0)


def test_a_group_has_bounds_of_its_own(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    client.groups.set("q", "acme", max_depth=2, max_age=60)
    client.groups.set("q", max_depth=3)

    def put(group: str, count: int = 1) -> list[str]:
        return [
            e.outcome for e in client.enqueue_many(dibs.NewJob(queue="q", kind="k", group=group) for _ in range(count))
        ]

    put("acme", 2)
    with pytest.raises(dibs.QueueFull, match="group 'acme' of queue 'q' is full: 2 jobs wait, at most 2 may"):
        put("acme")
    put("globex", 3)
    with pytest.raises(dibs.QueueFull, match="'globex'"):
        put("globex")
    assert client.queues.depth("q").ready == 5
    client.queues.set("q", when_full="sideline")
    assert put("acme", 2) == ["sidelined"] * 2
    taken = client.claim("q", 10)
    assert sorted(job.priority for job in taken) == [-100, -100, 5, 5, 5, 5, 5]
    client.complete_many(taken)
    assert put("acme") == ["enqueued"]
    clock.move(61)
    assert put("acme") == ["sidelined"]
    client.groups.set("q", "acme", max_depth=None, max_age=None)
    assert put("acme", 5) == ["enqueued"] * 5
    [acme, _] = sorted((limit for limit in client.limits.list()), key=lambda limit: limit.name or "~")
    assert (acme.name, acme.max_depth, acme.max_age) == ("acme", None, None)


@pytest.mark.parametrize("bound", ["queue", "group"])
def test_jobs_that_wait_for_a_limit_count_for_the_bound(client: dibs.Client, bound: str) -> None:
    """Each claim moves them aside: otherwise the queue would never be full."""
    if bound == "group":
        client.groups.set("q", "acme", max_depth=3)
    else:
        client.queues.set("q", max_depth=3)
    client.limits.set(kind="k", concurrency=1)
    for _ in range(4):
        client.enqueue("q", "k", group="acme")
        client.claim("q", 10)
    with pytest.raises(dibs.QueueFull):
        client.enqueue("q", "k", group="acme")
    assert client.enqueue("other", "k", group="acme").is_new
    assert (client.queues.depth("q").blocked, client.queues.depth("q").running) == (3, 1)


@pytest.mark.parametrize("bound", ["queue", "group"])
def test_jobs_that_wait_for_a_limit_count_for_the_age(client: dibs.Client, clock: Clock, bound: str) -> None:
    clock.freeze()
    if bound == "group":
        client.groups.set("q", "acme", max_age=60)
    else:
        client.queues.set("q", max_age=60)
    client.limits.set(kind="k", concurrency=1)
    client.enqueue_many(dibs.NewJob(queue="q", kind="k", group="acme") for _ in range(3))
    assert len(client.claim("q", 10)) == 1
    assert client.queues.depth("q").blocked == 2
    assert client.enqueue("q", "other", group="acme").is_new
    assert len(client.claim("q", 10)) == 1
    clock.move(61)
    with pytest.raises(dibs.QueueFull):
        client.enqueue("q", "other", group="acme")


def test_sidelined_jobs_that_wait_for_a_limit_do_not_count(client: dibs.Client) -> None:
    client.queues.set("q", max_depth=1, when_full="sideline")
    client.limits.set(kind="k", concurrency=1)

    def put() -> str:
        [entry] = client.enqueue_many([dibs.NewJob(queue="q", kind="k")])
        return entry.outcome

    assert put() == "enqueued"
    running = client.claim("q")
    assert [put(), put()] == ["enqueued", "sidelined"]
    assert client.claim("q", 10) == []
    assert client.queues.depth("q").blocked == 2
    client.complete_many(running)
    [second] = client.claim("q", 10)
    assert (second.priority, client.queues.depth("q").blocked) == (5, 1)
    assert put() == "enqueued"


def test_a_group_of_sidelined_jobs_does_not_make_a_queue_too_old(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    client.queues.set("q", max_depth=1, max_age=60, when_full="sideline")
    first = client.enqueue("q", "k")
    assert client.enqueue("q", "k", group="acme").outcome == "sidelined"
    client.cancel(first.id)
    clock.move(61)
    assert client.enqueue("q", "k").outcome == "enqueued"


def test_a_replacement_keeps_its_priority_in_a_batch_that_is_sidelined(
    client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    client.enqueue("q", "k", dedup_key="same")
    fill(client, 2)
    client.queues.set("q", max_depth=1, when_full="sideline")
    replacement = dibs.NewJob(queue="q", kind="k", dedup_key="same", on_duplicate="replace", priority=7)
    made = client.enqueue_many([replacement, dibs.NewJob(queue="q", kind="k", priority=7)])
    assert [m.outcome for m in made] == ["replaced", "sidelined"]
    stored = dict(db.execute("select id, priority from dibs.ready").fetchall())
    assert [stored[m.id] for m in made] == [7, -100]


def test_a_batch_of_replacements_and_new_jobs_does_not_exceed_the_bound(client: dibs.Client) -> None:
    """The replaced jobs are cancelled when the queue is measured, and the jobs in their places not inserted yet."""
    client.queues.set("q", max_depth=5)
    client.enqueue_many(dibs.NewJob(queue="q", kind="k", dedup_key=str(n)) for n in range(5))
    replacements = [dibs.NewJob(queue="q", kind="k", dedup_key=str(n), on_duplicate="replace") for n in range(3)]
    with pytest.raises(dibs.QueueFull, match="5 jobs wait, at most 5 may, and this call brings 1 more"):
        client.enqueue_many([*replacements, dibs.NewJob(queue="q", kind="k")])
    assert [m.outcome for m in client.enqueue_many(replacements)] == ["replaced"] * 3
    client.queues.set("q", max_depth=6)
    client.enqueue_many([*replacements, dibs.NewJob(queue="q", kind="k")])
    assert client.queues.depth("q").ready == 6


def test_a_batch_of_replacements_and_new_jobs_does_not_exceed_the_bound_of_a_group(client: dibs.Client) -> None:
    client.groups.set("q", "acme", max_depth=2)
    held, new = (dibs.NewJob(queue="q", kind="k", group="acme", dedup_key=key) for key in ("held", "new"))
    client.enqueue_many([held, new])
    replacement = dibs.NewJob(queue="q", kind="k", group="acme", dedup_key="held", on_duplicate="replace")
    with pytest.raises(dibs.QueueFull, match="2 jobs wait, at most 2 may, and this call brings 1 more"):
        client.enqueue_many([replacement, dibs.NewJob(queue="q", kind="k", group="acme")])
    assert client.enqueue_many([replacement])[0].outcome == "replaced"


def remembers_long(db: psycopg.Connection[Any]) -> None:
    db.execute("create or replace function dibs._cooldown(took bigint) returns bigint language sql return 600000000")


def test_follow_ups_that_a_full_queue_takes_are_remembered(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.queues.set("next", max_depth=3)
    remembers_long(db)
    client.enqueue("q", "k")
    job, token = db.execute("select id, token from dibs.claim('{q}')").fetchall()[0]
    db.execute("select dibs.enqueue('next', 'k')")
    db.execute("select dibs.enqueue('next', 'k')")
    follow_ups = '[{"queue": "next", "kind": "k"}, {"queue": "next", "kind": "k"}]'
    db.execute("select dibs.complete(%s, %s, follow_ups => %s)", (job, token, follow_ups))
    with pytest.raises(psycopg.DatabaseError, match="queue 'next' is full: 3 jobs wait, at most 3 may"):
        db.execute("select dibs.enqueue('next', 'k')")


def test_a_new_max_age_counts_at_once(client: dibs.Client, db: psycopg.Connection[Any], clock: Clock) -> None:
    """The session remembers how many jobs wait, but has not looked yet since when."""
    clock.freeze()
    client.queues.set("q", max_depth=100)
    remembers_long(db)
    for _ in range(3):
        db.execute("select dibs.enqueue('q', 'k')")
    clock.move(61)
    client.queues.set("q", max_age=60)
    with pytest.raises(psycopg.DatabaseError, match="queue 'q' is full: its oldest job has been due for 00:01:01"):
        db.execute("select dibs.enqueue('q', 'k')")


def test_what_is_remembered_does_not_depend_on_the_style_of_dates(
    client: dibs.Client, db: psycopg.Connection[Any], clock: Clock
) -> None:
    clock.freeze(datetime(2030, 1, 25, tzinfo=UTC))
    client.queues.set("q", max_age=60)
    remembers_long(db)
    for style in ("SQL, DMY", "SQL, MDY", "German", "Postgres, DMY"):
        db.execute("select set_config('datestyle', %s, false)", (style,))
        db.execute("select dibs.enqueue('q', 'k')")
        db.execute("select dibs.enqueue('q', 'k')")


def test_a_group_that_is_too_old_says_so_and_counts_nothing(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    client.groups.set("q", "acme", max_age=60)
    client.enqueue("q", "k", group="acme")
    clock.move(61)
    full = (
        "group 'acme' of queue 'q' is full: its oldest job has been due for 00:01:01, and at most 00:01:00 is allowed"
    )
    with pytest.raises(dibs.QueueFull, match=full):
        client.enqueue("q", "k", group="acme")
