"""Limits are exact across claimers and crashes, can change while jobs run, and hold up no other job."""

from __future__ import annotations

import json
import random
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import dibs
from tests.waiting import wait_until

if TYPE_CHECKING:
    from uuid import UUID

    from dibs.testing import Clock
    from tests.conftest import Connect

Row = tuple[Any, ...]


def fill(db: psycopg.Connection[Any], count: int, kind: str = "k", queue: str = "q", **options: Any) -> list[UUID]:
    job = {"queue": queue, "kind": kind, **options}
    return [row[0] for row in db.execute("select id from dibs.enqueue_many(%s)", (json.dumps([job] * count),))]


def take(db: psycopg.Connection[Any], count: int, queue: str = "q") -> list[Row]:
    return db.execute("select id, token, kind from dibs.claim(array[%s], %s)", (queue, count)).fetchall()


def done(db: psycopg.Connection[Any], rows: list[Row]) -> None:
    ids, tokens = [r[0] for r in rows], [r[1] for r in rows]
    answers = db.execute("select answer from dibs.complete_many(%s, %s)", (ids, tokens)).fetchall()
    assert answers == [("ok",)] * len(rows)


def set_limit(db: psycopg.Connection[Any], **limit: Any) -> None:
    names = ", ".join(f"{name} => %({name})s" for name in limit)
    db.execute(f"select dibs.set_limit({names})", limit)


def units(db: psycopg.Connection[Any]) -> dict[str, tuple[int, int]]:
    """The concurrency of each limit, and its free and held units less its debt."""
    rows = db.execute(
        "select b.name, b.concurrency,"
        " (select coalesce(sum(units), 0) from dibs.limit_unit where limit_id = b.id) - b.debt + ("
        " select coalesce(sum(u.units), 0) from dibs.lease as l,"
        " unnest(l.limit_ids, l.limit_units) as u (id, units)"
        " where u.id = b.id) from dibs.limit_rule as b where b.concurrency is not null"
    )
    return {name: (concurrency, int(counted)) for name, concurrency, counted in rows}


@pytest.mark.parametrize(
    ("limit", "options"),
    [({"queue": "q"}, {}), ({"kind": "k"}, {}), ({"resource": "gpu"}, {"resources": {"gpu": 1}})],
)
def test_no_more_run_than_the_limit(db: psycopg.Connection[Any], limit: dict[str, str], options: Any) -> None:
    set_limit(db, **limit, concurrency=3)
    fill(db, 10, **options)
    first = take(db, 50)
    assert len(first) == 3
    assert take(db, 50) == []
    done(db, first[:2])
    assert len(take(db, 50)) == 2
    [(used, free, holders)] = db.execute("select used, free, cardinality(holders) from dibs.limits").fetchall()
    assert (used, free, holders) == (3, 0, 3)
    assert {concurrency - counted for concurrency, counted in units(db).values()} == {0}


def test_a_limited_job_does_not_hold_up_others(db: psycopg.Connection[Any]) -> None:
    set_limit(db, kind="slow", concurrency=1)
    slow = fill(db, 20, "slow")
    fast = fill(db, 5, "fast")
    got = take(db, 6)
    assert [r[0] for r in got] == [slow[0], *fast]
    states = db.execute("select state, count(*) from dibs.jobs group by 1 order by 1").fetchall()
    assert states == [("blocked", 19), ("running", 6)]
    done(db, got[:1])
    assert [r[0] for r in take(db, 6)] == [slow[1]]


def test_resources_are_counted_in_units(db: psycopg.Connection[Any]) -> None:
    set_limit(db, resource="gpu", concurrency=4)
    set_limit(db, resource="licence", concurrency=2)
    big = fill(db, 1, resources={"gpu": 3, "licence": 1})
    two = fill(db, 2, resources={"gpu": 2})
    small = fill(db, 3, resources={"gpu": 1})
    unlimited = fill(db, 1, resources={"disk": 99})
    got = take(db, 50)
    assert [r[0] for r in got] == [*big, small[0], *unlimited]
    done(db, [r for r in got if r[0] in big])
    assert [r[0] for r in take(db, 50)] == [two[0], small[1]]


def test_why_names_the_limit_and_who_holds_it(db: psycopg.Connection[Any]) -> None:
    set_limit(db, kind="k", concurrency=1)
    set_limit(db, queue="one", concurrency=1)
    first, second = fill(db, 2)
    other, another = fill(db, 2, "x", "one")
    take(db, 10)
    take(db, 10, "one")
    [(blocked,)] = db.execute("select dibs.why(%s)", (second,)).fetchall()
    assert "limit of kind k" in blocked
    assert str(first) in blocked
    [(waiting,)] = db.execute("select dibs.why(%s)", (another,)).fetchall()
    assert "queue 'one' may run 1 at once" in waiting
    assert str(other) in waiting
    db.execute("select dibs.set_group('one', null, '{\"concurrency\": 1}')")
    db.execute("select dibs.drop_limit(queue => 'one')")
    holder, waiter = fill(db, 2, "x", "one", group="acme")
    take(db, 10, "one")
    [(grouped,)] = db.execute("select dibs.why(%s)", (waiter,)).fetchall()
    assert "its group 'acme' may run 1 at once" in grouped
    assert str(holder) in grouped


def test_limits_change_while_jobs_run(db: psycopg.Connection[Any]) -> None:
    fill(db, 40)
    early = take(db, 2)
    set_limit(db, kind="k", concurrency=5)
    first = early + take(db, 50)
    assert len(first) == 5
    set_limit(db, kind="k", concurrency=2)
    done(db, first[:3])
    assert take(db, 50) == []
    done(db, first[3:4])
    second = take(db, 50)
    assert len(second) == 1
    set_limit(db, kind="k", concurrency=6)
    third = take(db, 50)
    assert len(third) == 4
    assert {concurrency - counted for concurrency, counted in units(db).values()} == {0}
    db.execute("select dibs.drop_limit(kind => 'k')")
    runs = "select count(*) from dibs.lease"
    wait_until(lambda: not take(db, 50) and db.execute(runs).fetchone() == (36,), what="the blocked jobs run")
    done(db, first[4:] + second + third)
    assert db.execute("select count(*) from dibs.limit_unit").fetchone() == (0,)


def test_every_end_of_a_run_returns_its_units(db: psycopg.Connection[Any], clock: Clock) -> None:
    clock.freeze()
    set_limit(db, kind="k", concurrency=1)
    fill(db, 10)
    exits = (
        "select dibs.complete(%s, %s)",
        "select dibs.fail(%s, %s, 'x')",
        "select dibs.fail(%s, %s, 'x', final => true)",
        "select dibs.snooze(%s, %s, '1 hour')",
        "select dibs.release(%s, %s, '1 hour')",
    )
    for statement in exits:
        [(id, token, _)] = take(db, 10)
        assert take(db, 10) == []
        db.execute(statement, (id, token))
    [(id, token, _)] = take(db, 10)
    db.execute("select dibs.cancel(%s)", (id,))
    db.execute("select dibs.fail(%s, %s)", (id, token))
    take(db, 10)
    clock.move(31)
    assert len(db.execute("select * from dibs.rescue()").fetchall()) == 1
    assert len(take(db, 10)) == 1
    assert units(db) == {"k": (1, 1)}


def test_blocked_jobs_can_be_cancelled_and_expire(db: psycopg.Connection[Any], clock: Clock) -> None:
    clock.freeze()
    db.execute("""select dibs.set_queue('q', '{"ttl": 60}')""")
    set_limit(db, kind="k", concurrency=1)
    _, second, third, fourth = fill(db, 4)
    [held] = take(db, 10)
    assert db.execute("select dibs.cancel(%s)", (second,)).fetchone() == ("cancelled",)
    clock.move(61)
    db.execute("select dibs.extend(%s, %s)", held[:2])
    assert db.execute("select expired from dibs.expire()").fetchone() == (2,)
    statement = "select done from dibs.retry(jsonb_build_object('ids', array[%s, %s]::uuid[]))"
    assert db.execute(statement, (third, fourth)).fetchone() == (2,)
    done(db, [held])
    assert [r[0] for r in take(db, 10)] == [third]


def test_a_group_whose_job_waited_long_for_a_unit_is_found_at_once(db: psycopg.Connection[Any], clock: Clock) -> None:
    clock.freeze()
    set_limit(db, kind="k", concurrency=1)
    [first, second] = [fill(db, 1, group=group)[0] for group in "ab"]
    [held] = take(db, 10)
    assert held[0] == first
    for _ in range(5):  # Each raises the floor.
        clock.move(10)
        db.execute("select dibs.extend(%s, %s)", held[:2])
        assert take(db, 10) == []
    done(db, [held])
    assert [r[0] for r in take(db, 10)] == [second]


def test_a_ticket_that_another_connection_blocked_is_found_at_once(
    connect: Connect, db: psycopg.Connection[Any]
) -> None:
    set_limit(db, kind="k", concurrency=1)
    fill(db, 3)
    [held] = take(db, 10)
    assert take(db, 10) == []
    other = connect()
    [urgent] = fill(other, 1, priority=9)
    assert take(other, 10) == []
    done(db, [held])
    assert [r[0] for r in take(db, 10)] == [urgent]


def test_a_unit_that_is_returned_late_is_found(connect: Connect, db: psycopg.Connection[Any]) -> None:
    """A completion commits long after other jobs have taken and returned hundreds of units."""
    set_limit(db, kind="k", concurrency=2)
    fill(db, 400)
    [late, *_] = take(db, 1)
    other = connect()
    other.execute("begin")
    done(other, [late])
    for _ in range(300):
        done(db, take(db, 1))
    other.execute("commit")
    held: list[Row] = []

    def both_are_used() -> bool:
        held.extend(take(db, 2))
        return len(held) == 2

    wait_until(both_are_used, what="both units are used again")


def test_a_strict_group_waits_for_its_blocked_job(db: psycopg.Connection[Any]) -> None:
    set_limit(db, resource="gpu", concurrency=1)
    db.execute("select dibs.set_group('q', null, '{\"concurrency\": 1}')")
    fill(db, 1, resources={"gpu": 1})
    [holder] = take(db, 10)
    first = fill(db, 1, group="a", resources={"gpu": 1})
    second = fill(db, 1, group="a")
    other = fill(db, 1, group="b")
    assert [r[0] for r in take(db, 10)] == other
    assert take(db, 10) == []
    done(db, [holder])
    [got] = take(db, 10)
    assert got[0] == first[0]
    assert take(db, 10) == []
    done(db, [got])
    assert [r[0] for r in take(db, 10)] == second


def test_groups_and_limits_of_kinds_together(db: psycopg.Connection[Any]) -> None:
    set_limit(db, kind="slow", concurrency=2)
    set_limit(db, queue="q", concurrency=7)
    db.execute("select dibs.set_group('q', null, '{\"concurrency\": 3}')")
    for group in ("a", "b"):
        fill(db, 10, "slow", group=group)
    fill(db, 10, "fast", group="c")
    served = 0
    running: list[Row] = []
    for _ in range(60):
        running += take(db, 20)
        assert len(running) <= 7
        assert sum(r[2] == "slow" for r in running) <= 2
        assert sum(r[2] == "fast" for r in running) <= 3
        if running:
            done(db, [running.pop(0)])
            served += 1
        if served == 30:
            break
    assert served == 30
    assert {concurrency - counted for concurrency, counted in units(db).values()} == {0}
    group_keys = "select count(*) from dibs.group_pointer"
    wait_until(lambda: take(db, 5) == [] and db.execute(group_keys).fetchone() == (0,), what="no group_key is left")


def test_a_rate_lets_through_what_it_says(connect: Connect, db: psycopg.Connection[Any], clock: Clock) -> None:
    """100 jobs per second, with four workers, for ten seconds of virtual time."""
    clock.freeze()
    set_limit(db, queue="q", rate=100, burst=20)
    fill(db, 2000)
    conns = [connect() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        burst = sum(pool.map(lambda conn: len(take(conn, 50)), conns))
        while rows := take(db, 50):
            burst += len(rows)
        assert burst == 20
        started = 0
        for _ in range(100):
            clock.move(0.1)
            started += sum(pool.map(lambda conn: len(take(conn, 20)), conns))
    assert 990 <= started <= 1010
    while rows := take(db, 50):
        started += len(rows)
    assert 990 <= started <= 1000
    [(due,)] = db.execute("select dibs.next_due('{q}') - dibs.now()").fetchall()
    assert due.total_seconds() == pytest.approx(0.005, abs=0.006)


@pytest.mark.parametrize(
    ("limit", "options", "top"),
    [
        ({"queue": "q", "concurrency": 5}, {}, 5),
        ({"kind": "k", "concurrency": 5}, {}, 5),
        ({"resource": "gpu", "concurrency": 10}, {"resources": {"gpu": 2}}, 5),
        ({}, {"group": "a"}, 5),
    ],
)
def test_sixteen_claimers_never_exceed_a_limit(
    connect: Connect, db: psycopg.Connection[Any], limit: dict[str, Any], options: dict[str, Any], top: int
) -> None:
    """Crashes are leases that nobody renews. The history tells how many jobs ran at a time."""
    db.execute('select dibs.set_queue(\'q\', \'{"lease": 0.3, "max_attempts": 100, "max_losses": 100}\')')
    if limit:
        set_limit(db, **limit)
    else:
        db.execute("select dibs.set_group('q', 'a', '{\"concurrency\": 5}')")
    fill(db, 100, **options)
    conns = [connect() for _ in range(16)]
    left = [100]
    lock = threading.Lock()

    def work(n: int) -> None:
        rng = random.Random(n)
        db = conns[n]
        while left[0] > 0:
            if n == 0:
                db.execute("select from dibs.rescue()")
            for id, token, _ in take(db, rng.choice([1, 2, 10])):
                if rng.random() < 0.03:
                    continue  # As if the worker had died.
                try:
                    if rng.random() < 0.1:
                        db.execute("select dibs.release(%s, %s)", (id, token))
                    else:
                        db.execute("select dibs.complete(%s, %s)", (id, token))
                        with lock:
                            left[0] -= 1
                except psycopg.DatabaseError as error:
                    if error.sqlstate != "DI001":
                        raise

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))
    runs = db.execute("select claimed_at, ended_at from dibs.attempt").fetchall()
    events = sorted([(end, 0) for _, end in runs] + [(start, 1) for start, _ in runs])
    running = most = 0
    for _, starts in events:
        running += 1 if starts else -1
        most = max(most, running)
    assert most == top
    assert {concurrency - counted for concurrency, counted in units(db).values()} <= {0}
    assert db.execute("select dibs.repair_limits()").fetchone() == (0,)
    assert db.execute("select dibs.repair_groups()").fetchone() == (0,)


@pytest.mark.parametrize(
    ("limit", "options"),
    [
        ({"queue": "q", "concurrency": 5}, {}),
        ({"kind": "k", "concurrency": 5}, {}),
        ({"resource": "gpu", "concurrency": 10}, {"resources": {"gpu": 2}}),
        ({}, {"group": "a"}),
    ],
)
def test_a_crash_costs_its_units_for_one_lease(
    db: psycopg.Connection[Any], clock: Clock, limit: dict[str, Any], options: dict[str, Any]
) -> None:
    """A limit is fully used again within one lease after a crash."""
    clock.freeze()
    db.execute("""select dibs.set_queue('q', '{"lease": 30}')""")
    if limit:
        set_limit(db, **limit)
    else:
        db.execute("select dibs.set_group('q', 'a', '{\"concurrency\": 5}')")
    fill(db, 100, **options)
    crashed = take(db, 50)[:3]
    clock.move(29.9)
    db.execute("select dibs.rescue()")
    living = [
        row
        for row in db.execute("select id, token from dibs.lease").fetchall()
        if row[0] not in {r[0] for r in crashed}
    ]
    db.execute("select dibs.extend_many(%s, %s)", ([r[0] for r in living], [r[1] for r in living]))
    assert (len(living), take(db, 50)) == (2, [])
    clock.move(0.1)
    assert len(db.execute("select * from dibs.rescue()").fetchall()) == 3
    assert len(take(db, 50)) == 3
    assert take(db, 50) == []


def test_a_rolled_back_claim_takes_no_units(connect: Connect, db: psycopg.Connection[Any]) -> None:
    set_limit(db, kind="k", concurrency=2)
    fill(db, 5)
    other = connect()
    other.execute("begin")
    assert len(take(other, 10)) == 2
    assert take(db, 10) == []
    other.execute("rollback")
    wait_until(lambda: len(take(db, 10)) == 2, what="the units are free again")


def test_repair_creates_missing_units_and_rates(db: psycopg.Connection[Any]) -> None:
    set_limit(db, kind="k", concurrency=3)
    set_limit(db, queue="q", rate=5)
    fill(db, 5)
    assert len(take(db, 1)) == 1
    assert db.execute("select dibs.repair_limits()").fetchone() == (0,)
    db.execute("delete from dibs.limit_unit; delete from dibs.limit_rate")
    assert take(db, 5) == []
    assert db.execute("select dibs.repair_limits()").fetchone() == (2,)
    assert len(take(db, 5)) == 2


def test_the_end_of_a_run_rings_for_a_blocked_job(connect: Connect, db: psycopg.Connection[Any]) -> None:
    set_limit(db, kind="k", concurrency=1)
    fill(db, 2)
    [held] = take(db, 10)
    listener = connect()
    listener.execute("listen dibs")
    done(db, [held])
    [ring] = listener.notifies(timeout=5, stop_after=1)
    assert db.execute("select queue from dibs.bells() where number = %s", (int(ring.payload),)).fetchone() == ("q",)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("set_limit(concurrency => 1)", "DI010"),
        ("set_limit(queue => 'q', kind => 'k', concurrency => 1)", "DI010"),
        ("set_limit(queue => 'q')", "DI010"),
        ("set_limit(queue => 'q', concurrency => 1, burst => 1)", "DI010"),
        ("set_limit(queue => 'q', concurrency => -1)", "23514"),
        ("set_limit(queue => 'q', rate => 0)", "23514"),
        ("drop_limit(kind => 'nobody')", "DI030"),
        ("set_group('q', 'a', '{\"wait\": 1}')", "DI010"),
        ("set_group('q', 'a', '{\"weight\": 0}')", "23514"),
        ("set_group('q', '', '{\"weight\": 1}')", "DI010"),
        ("enqueue('q', 'k', resources => '{\"gpu\": 0}')", "DI010"),
        ("enqueue('q', 'k', resources => '{\"gpu\": 1.5}')", "DI010"),
        ("enqueue('q', 'k', resources => '[1]')", "DI010"),
        ("enqueue('q', 'k', \"group\" => '')", "23514"),
        ("enqueue('q', 'k', \"group\" => 'a', cost => 0)", "23514"),
    ],
)
def test_wrong_arguments_are_refused(shared_db: psycopg.Connection[Any], call: str, code: str) -> None:
    with pytest.raises(psycopg.DatabaseError) as caught:
        shared_db.execute(f"select dibs.{call}")
    assert caught.value.sqlstate == code


def test_limits_of_one_queue_do_not_mark_another(db: psycopg.Connection[Any]) -> None:
    fill(db, 3)
    set_limit(db, queue="other", concurrency=1)
    db.execute("select dibs.enqueue('other', 'k', resources => '{\"gpu\": 1}', \"group\" => 'a')")
    row = db.execute("select has_groups, has_limit, has_job_limits from dibs.queue where name = 'q'").fetchone()
    assert row == (False, False, False)
    counted = defaultdict(int, {row[0]: 1 for row in take(db, 3)})
    assert len(counted) == 3


def test_units_of_one_limit_do_not_count_for_another(db: psycopg.Connection[Any]) -> None:
    """A job holds 2 units of the limit with id 1. A limit with id 2 has all of its units free."""
    set_limit(db, resource="gpu", concurrency=4)
    fill(db, 1, resources={"gpu": 2})
    assert len(take(db, 1)) == 1
    set_limit(db, kind="other", concurrency=3)
    assert units(db) == {"gpu": (4, 4), "other": (3, 3)}
    db.execute("select dibs.enqueue('q', 'other') from generate_series(1, 5)")
    assert len(take(db, 10)) == 3


@pytest.mark.parametrize("group", [None, "g"])
def test_a_backlog_of_a_limited_kind_is_moved_in_parts(db: psycopg.Connection[Any], group: str | None) -> None:
    """Otherwise a claim would move all of it in one statement, and a statement timeout would let no job start."""
    set_limit(db, kind="slow", concurrency=1)
    fill(db, 5000, "slow", group=group)
    [fast] = fill(db, 1, "fast", group="other" if group else None)
    got: list[Row] = []
    for _ in range(8):
        before = count_blocked(db)
        got += take(db, 10)
        assert count_blocked(db) - before <= 1010
        if fast in [row[0] for row in got]:
            break
    assert sorted(row[2] for row in got) == ["fast", "slow"]
    done(db, [row for row in got if row[2] == "slow"])
    assert [row[2] for row in take(db, 10)] == ["slow"]
    db.execute("select dibs.drop_limit(kind => 'slow')")
    assert count_blocked(db) == 0


def count_blocked(db: psycopg.Connection[Any]) -> int:
    row = db.execute("select count(*) from dibs.blocked").fetchone()
    assert row
    return int(row[0])


def test_a_claim_that_stopped_halfway_through_a_backlog_rings(dsn: str, db: psycopg.Connection[Any]) -> None:
    set_limit(db, kind="slow", concurrency=0)
    fill(db, 2500, "slow")
    [fast] = fill(db, 1, "fast")
    with dibs.Client(dsn, poll=600) as client:
        [job] = client.claim("q", 10, wait=300)
    assert job.id == fast


def test_ready_tickets_that_need_an_exhausted_limit_are_blocked(db: psycopg.Connection[Any]) -> None:
    set_limit(db, kind="slow", concurrency=1)
    mixed = [{"queue": "q", "kind": kind} for _ in range(300) for kind in ("slow", "fast")]
    db.execute("select count(*) from dibs.enqueue_many(%s)", (json.dumps(mixed),))
    assert [row[2] for row in take(db, 20)].count("fast") == 19
    assert [row[2] for row in take(db, 20)].count("fast") == 20
    assert count_blocked(db) <= 299


def test_repair_unblocks_tickets_of_a_limit_that_is_gone(db: psycopg.Connection[Any]) -> None:
    set_limit(db, kind="k", concurrency=1)
    fill(db, 5)
    take(db, 5)
    db.execute("delete from dibs.limit_rule")  # As if a claim had overlapped drop_limit.
    db.execute("select dibs.repair_limits()")
    assert len(take(db, 5)) == 4
