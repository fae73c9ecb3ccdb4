"""A group's policy changes while its jobs run and wait: the group follows at once, and nothing is counted wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.sql.test_groups import done, drain, fill, left_behind, set_group, take

if TYPE_CHECKING:
    import psycopg

    from dibs.testing import Clock
    from tests.conftest import Connect


def fail(db: psycopg.Connection[Any], row: Any, delay: str) -> None:
    db.execute("select dibs.fail(%s, %s, 'boom', delay => %s)", (*row[:2], delay))


def repaired(db: psycopg.Connection[Any]) -> int:
    [(count,)] = db.execute("select dibs.repair_groups()").fetchall()
    return int(count)


@pytest.mark.parametrize("raised", [True, False])
def test_a_rate_that_is_raised_or_removed_reaches_jobs_that_wait(
    db: psycopg.Connection[Any], clock: Clock, raised: bool
) -> None:
    clock.freeze()
    set_group(db, "a", rate=0.001, burst=1)
    fill(db, "a", 3)
    assert len(take(db, 10)) == 1
    assert take(db, 10) == []
    if raised:
        set_group(db, "a", rate=10)
        assert take(db, 10) == [], "the burst is spent"
        clock.move(0.1)
        assert len(take(db, 10)) == 1
        clock.move(0.1)
        assert len(take(db, 10)) == 1
    else:
        db.execute("select dibs.drop_group('q', 'a')")
        assert len(take(db, 10)) == 2


def test_a_rate_goes_on_after_the_clock_was_set_back(db: psycopg.Connection[Any], clock: Clock) -> None:
    """At most the burst counts as spent, and repair_groups brings the group's pointers to the present."""
    clock.freeze()
    set_group(db, "a", rate=10, burst=5)
    fill(db, "a", 9)
    clock.move(3600)
    assert len(take(db, 10)) == 5
    clock.move(-3600)
    assert take(db, 10) == []
    assert repaired(db) > 0
    assert take(db, 10) == [], "the burst is spent"
    clock.move(0.1)
    assert len(take(db, 10)) == 1
    clock.move(0.3)
    assert len(take(db, 10)) == 3
    assert repaired(db) == 0


def test_a_group_that_waits_for_its_rate_needs_no_repair(db: psycopg.Connection[Any], clock: Clock) -> None:
    clock.freeze()
    set_group(db, rate=0.01, burst=3)
    fill(db, "a", 4)
    fill(db, "b", 2)
    assert len(take(db, 10)) == 5
    assert take(db, 10) == []
    clock.move(1)
    assert repaired(db) == 0


def test_a_group_that_is_no_longer_strict_waits_for_no_job(db: psycopg.Connection[Any], clock: Clock) -> None:
    clock.freeze()
    set_group(db, "a", concurrency=1)
    first, second, third, fourth = fill(db, "a", 4)
    [held] = take(db, 10)
    assert held[0] == first
    fail(db, held, "1 hour")
    assert take(db, 10) == []
    set_group(db, "a", concurrency=2)
    rows = take(db, 10)
    assert [r[0] for r in rows] == [second, third]
    fail(db, rows[0], "1 hour")
    assert [r[0] for r in take(db, 10)] == [fourth]


def test_a_group_that_becomes_strict_waits_for_jobs_that_ran(db: psycopg.Connection[Any], clock: Clock) -> None:
    clock.freeze()
    set_group(db, "a", concurrency=2)
    first, _, _ = fill(db, "a", 3)
    one, other = sorted(take(db, 2))
    assert one[0] == first
    set_group(db, "a", concurrency=1)
    done(db, [other])
    fail(db, one, "1 hour")
    assert take(db, 10) == []
    clock.move(3600)
    [again] = take(db, 10)
    assert again[0] == first
    done(db, [again])
    assert len(drain(db, 10)) == 1
    assert left_behind(db) == (0, 0)


def test_a_group_that_becomes_strict_waits_for_the_oldest(db: psycopg.Connection[Any], clock: Clock) -> None:
    clock.freeze()
    set_group(db, "a", concurrency=2)
    fill(db, "a", 3)
    one, other = sorted(take(db, 2))
    set_group(db, "a", concurrency=1)
    fail(db, one, "1 hour")
    assert take(db, 10) == []
    fail(db, other, "1 minute")
    assert take(db, 10) == []
    clock.move(60)
    assert take(db, 10) == []
    clock.move(3540)
    assert [r[0] for r in take(db, 10)] == [one[0]]


def test_a_run_whose_end_was_rolled_back_is_counted_again(connect: Connect, db: psycopg.Connection[Any]) -> None:
    """The lease was locked when the policy was set, so its hold could not be corrected then."""
    fill(db, "a", 3)
    [held] = take(db, 1)
    handler = connect()
    handler.execute("begin")
    handler.execute("select dibs.complete(%s, %s)", held[:2])
    set_group(db, "a", concurrency=2)
    handler.execute("rollback")
    assert repaired(db) == 1
    assert len(take(db, 10)) == 1
    assert repaired(db) == 0
    done(db, [held])
    assert len(drain(db, 10)) == 1
    assert repaired(db) == 0


def test_a_wrong_count_of_running_jobs_is_repaired(connect: Connect, db: psycopg.Connection[Any]) -> None:
    """repair_groups corrects a wrong count; if a claim has the group's lock, the next repair does."""
    set_group(db, "a", concurrency=2)
    fill(db, "a", 6)
    held = take(db, 10)
    assert repaired(db) == 0
    db.execute("update dibs.group_gate set running = running + 1")
    done(db, held[:1])
    assert take(db, 10) == []
    claimer = connect()
    claimer.execute("begin")
    claimer.execute("select from dibs.group_lock for update")
    assert repaired(db) == 0
    claimer.execute("rollback")
    assert repaired(db) == 1
    assert repaired(db) == 0
    assert len(take(db, 10)) == 1
    db.execute("update dibs.group_gate set running = 0")
    assert repaired(db) == 1
    assert take(db, 10) == []
    done(db, held[1:])
    assert len(drain(db, 10)) == 3


def test_a_group_waits_for_no_cancelled_job_after_the_clock_was_set_back(
    db: psycopg.Connection[Any], clock: Clock
) -> None:
    """Its wakeup, inserted while the clock was ahead, is brought to the present."""
    clock.freeze()
    set_group(db, "a", concurrency=1)
    first, second = fill(db, "a", 2)
    clock.move(3600)
    [held] = take(db, 10)
    assert held[0] == first
    fail(db, held, "1 day")
    assert take(db, 10) == []
    assert repaired(db) == 0
    assert db.execute("select dibs.cancel(%s)", (first,)).fetchone() == ("cancelled",)
    clock.move(-3600)
    assert take(db, 10) == []
    assert repaired(db) == 1
    assert [r[0] for r in take(db, 10)] == [second]
