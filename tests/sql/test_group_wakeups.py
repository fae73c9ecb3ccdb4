"""No wakeup of a group is lost: between two statements, behind a lock, below zero, or past a change of policy."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any

from tests.sql.test_groups import done, drain, fill, left_behind, set_group, take

if TYPE_CHECKING:
    import psycopg

    from dibs.testing import Clock
    from tests.conftest import Connect


def set_queue(db: psycopg.Connection[Any], policy: str) -> None:
    db.execute("select dibs.set_queue('q', %s)", (policy,))


def next_due_in(db: psycopg.Connection[Any]) -> float | None:
    [(due,)] = db.execute("select dibs.next_due('{q}') - dibs.now()").fetchall()
    return due.total_seconds() if due else None


def bucket(db: psycopg.Connection[Any], group: str) -> int:
    """The row of group_lock that a claim locks to serve a group of the queue q."""
    [(queue,)] = db.execute("select id from dibs.queue where name = 'q'").fetchall()
    group_key = sha256(f"{queue}:{group}".encode()).digest()
    return group_key[0] << 4 | group_key[1] & 15


def neighbour(db: psycopg.Connection[Any], group: str) -> str:
    """Another group behind the same lock."""
    wanted = bucket(db, group)
    return next(name for name in map(str, count()) if bucket(db, name) == wanted)


def make_noisy(db: psycopg.Connection[Any], other: psycopg.Connection[Any]) -> None:
    """Let the group `noisy` be served last, by a claim of `other`: 25 of its jobs wait."""
    set_queue(db, '{"noisy_share": 0.5}')
    fill(db, "noisy", 50)
    done(db, take(db, 5))
    assert len(take(db, 20)) == 20
    fill(db, "calm", 1)
    assert [r[2] for r in take(other, 1)] == ["calm"]
    assert db.execute("select count(*) > 0 from dibs.group_pointer where queue_id < 0").fetchone() == (True,)


def test_noisy_groups_are_served_when_nothing_is_noisy_any_more(connect: Connect, db: psycopg.Connection[Any]) -> None:
    make_noisy(db, connect())
    set_queue(db, '{"noisy_share": null}')
    fill(db, "calm", 25)
    # A connection looks at once, and then once a second.
    assert Counter(r[2] for r in take(connect(), 20)) == {"calm": 10, "noisy": 10}
    assert Counter(drain(connect(), 20)) == {"calm": 15, "noisy": 15}
    assert left_behind(db) == (0, 0)


def test_a_claim_in_flight_does_not_strand_a_noisy_group(connect: Connect, db: psycopg.Connection[Any]) -> None:
    """The claim began while the queue had a noisy_share, and diverts a group after it has none."""
    claimer = connect()
    set_queue(db, '{"noisy_share": 0.5}')
    fill(db, "noisy", 50)
    assert len(take(db, 20)) == 20
    claimer.execute("begin")
    assert Counter(r[2] for r in take(claimer, 5)) == {"noisy": 5}
    set_queue(db, '{"noisy_share": null}')
    claimer.execute("commit")
    assert len(drain(connect(), 20)) == 25
    assert left_behind(db) == (0, 0)


def test_a_worker_sleeps_until_a_noisy_group_may_go_on(
    connect: Connect, db: psycopg.Connection[Any], clock: Clock
) -> None:
    clock.freeze()
    set_queue(db, '{"noisy_share": 0.5}')
    fill(db, "a", 10)
    assert len(take(db, 5)) == 5
    set_group(db, "a", rate=0.1, burst=1)
    other = connect()
    assert len(take(other, 10)) == 1
    assert take(other, 10) == []
    assert next_due_in(db) == 10


def test_a_cancel_while_no_policy_is_set_gives_its_hold_back(connect: Connect, db: psycopg.Connection[Any]) -> None:
    """The hold is given back although no policy is set: a new policy, set before the commit, has counted it."""
    set_group(db, "a", concurrency=1)
    first, second = fill(db, "a", 2)
    [(id, token, _)] = take(db, 10)
    assert id == first
    assert db.execute("select dibs.park(%s, %s)", (id, token)).fetchone() == ("ok",)
    canceller = connect()
    db.execute("select dibs.drop_group('q', 'a')")
    canceller.execute("begin")
    assert canceller.execute("select dibs.cancel(%s)", (first,)).fetchone() == ("cancelled",)
    set_group(db, "a", concurrency=1)
    canceller.execute("commit")
    [held] = take(db, 10)
    assert held[0] == second
    done(db, [held])
    assert take(db, 10) == []
    assert left_behind(db) == (0, 0)


def test_a_group_waits_no_longer_for_a_job_that_never_ran(db: psycopg.Connection[Any], clock: Clock) -> None:
    """The job that has to run next waits for a limit, is then delayed, and is then cancelled."""
    clock.freeze()
    set_group(db, "a", concurrency=1)
    db.execute("select dibs.set_limit(resource => 'gpu', concurrency => 1)")
    [user] = fill(db, None, 1, resources={"gpu": 1})
    [held] = take(db, 1)
    assert held[0] == user
    [first] = fill(db, "a", 1, resources={"gpu": 1})
    clock.move(1)
    [second] = fill(db, "a", 1)
    assert take(db, 10) == []
    db.execute("select dibs.drop_limit(resource => 'gpu')")
    db.execute("select dibs.edit(%s, %s)", (first, '{"delay": "1 hour"}'))
    assert take(db, 10) == []
    assert db.execute("select run from dibs.ready where id = %s", (first,)).fetchone() == (0,)
    assert db.execute("select dibs.cancel(%s)", (first,)).fetchone() == ("cancelled",)
    assert [r[0] for r in take(db, 10)] == [second]


def test_a_wakeup_behind_a_lock_is_not_lost(connect: Connect, db: psycopg.Connection[Any], clock: Clock) -> None:
    """A claim that deletes a wakeup, but cannot lock the group, inserts the wakeup again."""
    clock.freeze()
    set_group(db, concurrency=1)
    first, second = fill(db, "a", 2)
    [(id, token, _)] = take(db, 10)
    db.execute("select dibs.fail(%s, %s, 'boom', delay => '1 hour')", (id, token))
    assert take(db, 10) == []
    other = neighbour(db, "a")
    fill(db, other, 1)
    holder = connect()
    holder.execute("begin")
    assert [r[2] for r in take(holder, 1)] == [other]
    assert db.execute("select dibs.cancel(%s)", (first,)).fetchone() == ("cancelled",)
    assert take(db, 10) == []
    holder.execute("commit")
    clock.move(1)
    assert [r[0] for r in take(db, 10)] == [second]


def test_a_gate_whose_rate_has_caught_up_is_collected_behind_a_lock(
    connect: Connect, db: psycopg.Connection[Any], clock: Clock
) -> None:
    clock.freeze()
    set_group(db, rate=1, burst=5)
    fill(db, "a", 2)
    done(db, take(db, 10))
    assert left_behind(db) == (1, 1)
    clock.move(10)
    holder = connect()
    holder.execute("begin")
    holder.execute("select from dibs.group_lock where bucket = %s for update", (bucket(db, "a"),))
    assert take(db, 10) == []
    holder.execute("commit")
    clock.move(1)
    assert take(db, 10) == []
    assert left_behind(db) == (0, 0)


def test_a_wakeup_of_a_noisy_group_is_not_lost(connect: Connect, db: psycopg.Connection[Any], clock: Clock) -> None:
    """The wakeup moves to the noisy rotation with its group."""
    clock.freeze()
    set_queue(db, '{"noisy_share": 0.4}')
    fill(db, "a", 2)
    held = take(db, 2)
    set_group(db, "a", concurrency=1)
    first, second = held[0][0], fill(db, "a", 1)[0]
    done(db, held[1:])
    db.execute("select dibs.fail(%s, %s, 'boom', delay => '1 hour')", held[0][:2])
    assert take(db, 10) == []
    db.execute(
        "insert into dibs.group_pointer (queue_id, group_key, look_at)"
        " select -q.id, dibs._group_key(q.id, 'a'), dibs.now() + interval '1 hour' from dibs.queue as q"
    )
    assert db.execute("select dibs.cancel(%s)", (first,)).fetchone() == ("cancelled",)
    assert [r[0] for r in take(connect(), 10)] == [second]


def test_a_noisy_group_that_a_later_round_finds_is_served_by_the_same_claim(
    connect: Connect, db: psycopg.Connection[Any]
) -> None:
    """The first round takes the pointers of the group `calm`, of which only one leads to a job."""
    set_queue(db, '{"noisy_share": 0.5}')
    fill(db, "noisy", 50)
    assert len(take(db, 20)) == 20
    calm = [fill(db, "calm", 1)[0] for _ in range(3)]
    for job in calm[1:]:
        db.execute("select dibs.cancel(%s)", (job,))
    db.execute(
        "update dibs.group_pointer set look_at = dibs.now()"
        " where group_key = (select group_key from dibs.lease limit 1)"
    )
    assert Counter(r[2] for r in take(connect(), 3)) == {"calm": 1, "noisy": 2}
