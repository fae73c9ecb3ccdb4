"""Groups get their shares, keep their order, limits and rates, and leave no rows behind."""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    import psycopg

    from dibs.testing import Clock
    from tests.conftest import Connect

Row = tuple[Any, ...]


def fill(db: psycopg.Connection[Any], group: str | None, count: int, **options: Any) -> list[UUID]:
    job = {"queue": "q", "kind": "k", "payload": group, **options} | ({"group": group} if group else {})
    return [row[0] for row in db.execute("select id from dibs.enqueue_many(%s)", (json.dumps([job] * count),))]


def take(db: psycopg.Connection[Any], count: int) -> list[Row]:
    """Claim jobs; return (id, token, group) of each."""
    return db.execute("select id, token, payload #>> '{}' from dibs.claim('{q}', %s)", (count,)).fetchall()


def done(db: psycopg.Connection[Any], rows: list[Row]) -> None:
    ids, tokens = [r[0] for r in rows], [r[1] for r in rows]
    answers = db.execute("select answer from dibs.complete_many(%s, %s)", (ids, tokens)).fetchall()
    assert answers == [("ok",)] * len(rows)


def left_behind(db: psycopg.Connection[Any]) -> tuple[int, int]:
    """The number of gates and of pointers."""
    row = db.execute(
        "select (select count(*) from dibs.group_gate), (select count(*) from dibs.group_pointer)"
    ).fetchone()
    assert row
    return row[0], row[1]


def set_group(db: psycopg.Connection[Any], name: str | None = None, **policy: Any) -> None:
    db.execute("select dibs.set_group('q', %s, %s)", (name, json.dumps(policy)))


def drain(db: psycopg.Connection[Any], batch: int) -> list[str]:
    """Claim and complete until nothing is left; return the group of each job, in the order of the claims."""
    served = []
    while rows := take(db, batch):
        served += [r[2] for r in rows]
        done(db, rows)
    return served


@pytest.mark.parametrize("batch", [1, 7, 200])
def test_groups_take_turns(db: psycopg.Connection[Any], batch: int) -> None:
    fill(db, "big", 400)
    for n in range(5):
        fill(db, f"small{n}", 5)
    served = drain(db, batch)
    assert Counter(served) == {"big": 400, **{f"small{n}": 5 for n in range(5)}}
    last_small = max(i for i, group in enumerate(served) if group != "big")
    assert last_small < max(60, batch + 30)
    assert left_behind(db) == (0, 0)


def test_jobs_without_a_group_count_as_one(db: psycopg.Connection[Any]) -> None:
    fill(db, None, 300)
    for n in range(3):
        fill(db, f"g{n}", 50)
    served = drain(db, 10)
    assert len(served) == 450
    first = Counter(g or "none" for g in served[:120])
    assert 20 <= first["none"] <= 45


def test_groups_get_their_share_after_a_long_pause(db: psycopg.Connection[Any], clock: Clock) -> None:
    """The share of ungrouped jobs counts groups whose pointers have waited for an hour."""
    clock.freeze()
    for n in range(3):
        fill(db, f"g{n}", 20)
    fill(db, None, 60)
    clock.move(3600)
    served = Counter(r[2] or "none" for _ in range(4) for r in take(db, 10))
    assert served["none"] <= 12
    assert sum(served.values()) == 40


def test_groups_that_came_late_are_found_beside_jobs_without_one(
    connect: Connect, db: psycopg.Connection[Any], clock: Clock
) -> None:
    """The pointer is committed below the floor of the rotation, and ungrouped jobs could fill every claim."""
    clock.freeze()
    db.execute("select dibs.set_queue('q')")
    db.execute("update dibs.queue set has_groups = true")
    fill(db, None, 2000)
    writer = connect()
    writer.execute("begin")
    fill(writer, "late", 3)
    clock.move(3600)
    assert len(take(db, 5)) == 5
    writer.execute("commit")
    wait_until(lambda: "late" in [r[2] for r in take(db, 1)], what="a job of the group is claimed")
    assert db.execute("select count(*) > 500 from dibs.ready where group_key is null").fetchone() == (True,)


@pytest.mark.parametrize("batch", [1, 13, 70])
def test_weights_are_shares(db: psycopg.Connection[Any], batch: int) -> None:
    for name, weight in (("a", 1), ("b", 2), ("c", 4)):
        set_group(db, name, weight=weight)
        fill(db, name, 500)
    served: Counter[str] = Counter()
    while sum(served.values()) < 700:
        rows = take(db, batch)
        served.update(r[2] for r in rows)
        done(db, rows)
    total = sum(served.values())
    for name, share in (("a", 1 / 7), ("b", 2 / 7), ("c", 4 / 7)):
        assert served[name] / total == pytest.approx(share, rel=0.1)


def test_claimers_who_meet_give_every_group_its_share(
    connect: Connect, db: psycopg.Connection[Any], clock: Clock
) -> None:
    """A claim also serves groups whose pointers another claim has locked, and finds those put back in front later."""
    clock.freeze()
    for name in "ab":
        fill(db, name, 100)
    clock.move(1)
    other = connect()
    other.execute("begin")
    assert sorted(Counter(r[2] for r in take(other, 3)).values()) == [1, 2]
    assert Counter(r[2] for r in take(db, 20)) == {"a": 10, "b": 10}
    other.execute("commit")
    clock.move(0.1)
    for _ in range(3):
        assert Counter(r[2] for r in take(db, 20)) == {"a": 10, "b": 10}


@pytest.mark.parametrize(("batch", "enough"), [(50, 2000), (1, 700)])
def test_weights_are_shares_among_many_claimers(
    connect: Connect, db: psycopg.Connection[Any], batch: int, enough: int
) -> None:
    """Each claimer gives shares by itself; ``bench weights`` measures how exactly."""
    weights = {"a": 1, "b": 2, "c": 4}
    for name, weight in weights.items():
        set_group(db, name, weight=weight)
        fill(db, name, 1500)
    served: list[str] = []

    def work(conn: psycopg.Connection[Any]) -> None:
        while len(served) < enough:
            rows = take(conn, batch)
            served.extend(r[2] for r in rows)
            done(conn, rows)

    conns = [connect() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, conns))
    counts = Counter(served)
    for name, weight in weights.items():
        assert counts[name] / len(served) == pytest.approx(weight / 7, rel=0.1)


def test_a_dear_job_counts_for_more(db: psycopg.Connection[Any]) -> None:
    fill(db, "costly", 300, cost=5)
    fill(db, "cheap", 900)
    served: Counter[str] = Counter()
    while sum(served.values()) < 600:
        rows = take(db, 20)
        served.update(r[2] for r in rows)
        done(db, rows)
    assert served["cheap"] / served["costly"] == pytest.approx(5, rel=0.15)


def test_priorities_count_inside_a_group(db: psycopg.Connection[Any]) -> None:
    low = fill(db, "a", 3, priority=1)
    high = fill(db, "a", 3, priority=8)
    middle = fill(db, "a", 3)
    assert [r[0] for r in take(db, 20)] == high + middle + low


def test_a_group_whose_jobs_wait_stands_in_nobodys_way(db: psycopg.Connection[Any], clock: Clock) -> None:
    clock.freeze()
    fill(db, "later", 20, delay=60)
    now = fill(db, "now", 3)
    assert {r[0] for r in take(db, 10)} == set(now)
    [(due,)] = db.execute("select dibs.next_due('{q}') - dibs.now()").fetchall()
    assert due.total_seconds() == pytest.approx(60, abs=1)
    soon = fill(db, "later", 2)
    assert [r[0] for r in take(db, 10)] == soon
    clock.move(61)
    assert len(take(db, 50)) == 20


@pytest.mark.parametrize("limit", [1, 3])
def test_a_group_runs_no_more_than_its_concurrency(db: psycopg.Connection[Any], limit: int) -> None:
    set_group(db, concurrency=limit)
    fill(db, "a", 10)
    fill(db, "b", 10)
    first = take(db, 50)
    assert Counter(r[2] for r in first) == {"a": limit, "b": limit}
    assert take(db, 50) == []
    done(db, [r for r in first if r[2] == "a"])
    second = take(db, 50)
    assert Counter(r[2] for r in second) == {"a": limit}
    done(db, [r for r in first if r[2] == "b"] + second)
    assert len(drain(db, 50)) == 20 - 3 * limit
    assert left_behind(db) == (0, 0)


def test_a_retry_keeps_its_place_and_the_group_waits(db: psycopg.Connection[Any], clock: Clock) -> None:
    clock.freeze()
    set_group(db, "a", concurrency=1)
    first, second, third = fill(db, "a", 3)
    [(id, token, _)] = take(db, 10)
    assert id == first
    db.execute("select dibs.fail(%s, %s, 'boom', delay => '30 s')", (id, token))
    clock.move(1)
    fill(db, "a", 2)
    assert take(db, 10) == []
    clock.move(31)
    [(id, token, _)] = take(db, 10)
    assert id == first
    db.execute("select dibs.snooze(%s, %s, '10 s')", (id, token))
    assert take(db, 10) == []
    clock.move(11)
    [(id, token, _)] = take(db, 10)
    assert id == first
    db.execute("select dibs.release(%s, %s)", (id, token))
    [(id, token, _)] = take(db, 10)
    assert id == first
    clock.move(31)
    db.execute("select dibs.rescue()")
    [(id, token, _)] = take(db, 10)
    assert id == first
    db.execute("select dibs.fail(%s, %s, 'never', final => true)", (id, token))
    [(id, token, _)] = take(db, 10)
    assert id == second
    db.execute("select dibs.fail(%s, %s, 'boom', delay => '30 s')", (id, token))
    assert db.execute("select dibs.cancel(%s)", (second,)).fetchone() == ("cancelled",)
    assert take(db, 10)[0][0] == third


def test_a_cancel_of_a_running_job_gives_its_hold_back(db: psycopg.Connection[Any]) -> None:
    set_group(db, concurrency=1)
    fill(db, "a", 2)
    [(id, token, _)] = take(db, 10)
    assert db.execute("select dibs.cancel(%s)", (id,)).fetchone() == ("requested",)
    assert take(db, 10) == []
    db.execute("select dibs.fail(%s, %s)", (id, token))
    assert len(drain(db, 10)) == 1
    assert left_behind(db) == (0, 0)


def test_a_concurrency_can_change_while_jobs_run(db: psycopg.Connection[Any]) -> None:
    set_group(db, "a", concurrency=4)
    fill(db, "a", 30)
    first = take(db, 10)
    assert len(first) == 4
    set_group(db, "a", concurrency=2)
    done(db, first[:2])
    assert take(db, 10) == []
    done(db, first[2:3])
    second = take(db, 10)
    assert len(second) == 1
    set_group(db, "a", concurrency=5)
    third = take(db, 10)
    assert len(third) == 3
    set_group(db, "a", concurrency=None)
    fourth = take(db, 10)
    assert len(fourth) == 10
    set_group(db, "a", concurrency=1)
    done(db, fourth)
    assert take(db, 10) == []
    done(db, second + third)
    assert take(db, 10) == []
    done(db, first[3:])
    assert len(take(db, 10)) == 1


def test_a_groups_rate_holds_to_the_tick(db: psycopg.Connection[Any], clock: Clock) -> None:
    clock.freeze()
    set_group(db, "a", rate=10, burst=5)
    fill(db, "a", 100)
    fill(db, "b", 3)
    assert Counter(r[2] for r in take(db, 50)) == {"a": 5, "b": 3}
    assert take(db, 50) == []
    [(due,)] = db.execute("select dibs.next_due('{q}') - dibs.now()").fetchall()
    assert due.total_seconds() == pytest.approx(0.1, abs=0.01)
    started = 0
    for _ in range(50):
        clock.move(0.1)
        started += len(take(db, 50))
    assert started == 50
    clock.move(60)
    assert len(take(db, 50)) == 5


def run_threads(count: int, work: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))


def test_four_claimers_serve_the_small_groups_first(connect: Connect, db: psycopg.Connection[Any]) -> None:
    """One group has 5,000 jobs, and 100 groups have 10 each."""
    fill(db, "big", 5000)
    for n in range(100):
        fill(db, f"small{n}", 10)
    served: list[str] = []
    lock = threading.Lock()
    conns = [connect() for _ in range(4)]

    def work(n: int) -> None:
        while rows := take(conns[n], 20):
            with lock:
                served.extend(r[2] for r in rows)
            done(conns[n], rows)

    run_threads(4, work)
    last_small = max(i for i, group in enumerate(served) if group != "big")
    assert served[:last_small].count("big") < 500
    assert len(served) + len(drain(db, 100)) == 6000
    # A pointer that a claim put back below the floor of another is found by the next look-back.
    wait_until(lambda: take(db, 1) == [] and left_behind(db) == (0, 0), what="no pointer is left behind")


def test_order_is_never_broken_by_sixteen_claimers(connect: Connect, db: psycopg.Connection[Any]) -> None:
    """The group is strict, and jobs fail, are snoozed and released at random; the history tells the order."""
    db.execute(
        'select dibs.set_queue(\'q\', \'{"max_attempts": 100, "max_losses": 100,'
        ' "backoff": {"kind": "constant", "delays": [0.01]}}\')'
    )
    set_group(db, concurrency=1)
    for n in range(8):
        for _ in range(5):
            fill(db, f"g{n}", 5)
    conns = [connect() for _ in range(16)]
    left = [200]
    lock = threading.Lock()

    def work(n: int) -> None:
        rng = random.Random(n)
        db = conns[n]
        while left[0] > 0:
            rows = take(db, rng.choice([1, 3, 20]))
            for id, token, _ in rows:
                what = rng.random()
                if what < 0.15:
                    db.execute("select dibs.fail(%s, %s, 'x')", (id, token))
                elif what < 0.2:
                    db.execute("select dibs.snooze(%s, %s, '10 ms')", (id, token))
                elif what < 0.25:
                    db.execute("select dibs.release(%s, %s)", (id, token))
                else:
                    db.execute("select dibs.complete(%s, %s)", (id, token))
                    with lock:
                        left[0] -= 1

    run_threads(16, work)
    runs = db.execute(
        "select j.group_name, a.id, a.claimed_at, a.ended_at, a.outcome = 'succeeded' from dibs.attempts as a"
        " join dibs.job as j using (id) order by j.group_name, a.claimed_at, a.ended_at"
    ).fetchall()
    by_group = defaultdict(list)
    for group, *run in runs:
        by_group[group].append(run)
    for group, attempts in by_group.items():
        for before, after in itertools.pairwise(attempts):
            assert before[2] <= after[1], f"two of {group} at once"
            assert after[0] == before[0] if not before[3] else after[0] > before[0]
    assert sum(r[4] for r in runs) == 200
    wait_until(lambda: take(db, 10) == [] and left_behind(db) == (0, 0), what="nothing is left behind")


def test_a_million_groups_leave_nothing_behind(db: psycopg.Connection[Any]) -> None:
    """With 3,000 groups: the first job of a group inserts its pointer, and the claim of its last deletes it."""
    jobs = json.dumps([{"queue": "q", "kind": "k", "group": f"g{n}"} for n in range(3000)])
    db.execute("select count(*) from dibs.enqueue_many(%s)", (jobs,))
    assert left_behind(db) == (0, 3000)
    assert len(drain(db, 500)) == 3000
    assert left_behind(db) == (0, 0)


def test_a_job_committed_after_its_group_ran_empty_is_found(connect: Connect, db: psycopg.Connection[Any]) -> None:
    """A job that commits late inserts its own pointer."""
    slow = connect()
    fill(db, "a", 1)
    slow.execute("begin")
    [id] = fill(slow, "a", 1)
    assert len(drain(db, 10)) == 1
    assert left_behind(db) == (0, 0)
    slow.execute("commit")
    wait_until(lambda: [r[0] for r in take(db, 10)] == [id], what="the late job is claimed")
    wait_until(lambda: take(db, 10) == [] and left_behind(db) == (0, 0), what="nothing is left behind")


def test_groups_go_on_after_the_clock_was_set_back(db: psycopg.Connection[Any], clock: Clock) -> None:
    clock.freeze()
    set_group(db, "limited", concurrency=3)
    fill(db, "limited", 9)
    fill(db, "free", 4)
    assert db.execute("select dibs.repair_groups()").fetchone() == (0,)
    clock.move(60)
    held = take(db, 5)
    done(db, held[:2])
    clock.move(-30)
    assert take(db, 50) == []
    assert db.execute("select dibs.repair_groups()").fetchone() != (0,)
    assert db.execute("select dibs.repair_groups()").fetchone() == (0,)
    got = Counter(r[2] for r in held[2:] + take(db, 50))
    assert got["limited"] == 3
    assert got["free"] >= 1


def test_retry_and_expire_know_groups(db: psycopg.Connection[Any], clock: Clock) -> None:
    clock.freeze()
    db.execute("""select dibs.set_queue('q', '{"ttl": 60}')""")
    fill(db, "a", 3)
    clock.move(61)
    assert take(db, 10) == []
    db.execute("select dibs.expire()")
    clock.move(2)
    assert take(db, 10) == []
    assert left_behind(db) == (0, 0)
    assert db.execute("""select done from dibs.retry('{"queue": "q"}')""").fetchone() == (3,)
    assert len(drain(db, 10)) == 3


def test_a_resumed_queue_finds_its_groups_again(db: psycopg.Connection[Any], clock: Clock) -> None:
    clock.freeze()
    db.execute("""select dibs.set_queue('q', '{"ttl": 60}')""")
    fill(db, "a", 3)
    assert len(take(db, 1)) == 1
    db.execute("select dibs.pause('q')")
    clock.move(100)
    assert take(db, 10) == []
    assert db.execute("select extended from dibs.resume('q', extend => '1 hour')").fetchone() == (2,)
    assert len(take(db, 10)) == 2


def test_a_group_above_its_share_is_served_last(connect: Connect, db: psycopg.Connection[Any]) -> None:
    db.execute("""select dibs.set_queue('q', '{"noisy_share": 0.5}')""")
    fill(db, "noisy", 100)
    assert len(take(db, 20)) == 20
    fill(db, "calm", 30)
    # A connection looks at once, and then once a second.
    other = connect()
    assert [r[2] for r in take(other, 28)] == ["calm"] * 28
    assert Counter(r[2] for r in take(other, 200)) == {"calm": 2, "noisy": 80}
    assert left_behind(db) == (0, 0)


def test_a_group_whose_first_job_costs_more_than_its_pointer_says_is_served(db: psycopg.Connection[Any]) -> None:
    """A pointer to several jobs has their average cost."""
    set_group(db, weight=1)
    for n in range(20):
        jobs = [{"queue": "q", "kind": "k", "group": f"g{n}", "cost": cost} for cost in (7, 1)]
        db.execute("select count(*) from dibs.enqueue_many(%s)", (json.dumps(jobs),))
        assert [len(take(db, 1)), len(take(db, 1))] == [1, 1]
