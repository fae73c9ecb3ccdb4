"""Tickets that wait for a limit: moving them back to ready, waking workers for them, and what `why` says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sql.test_limits import done, fill, set_limit, take

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg

    from dibs.testing import Clock
    from tests.conftest import Connect

    Connection = psycopg.Connection[Any]


def why(db: Connection, job: UUID) -> str:
    [(sentence,)] = db.execute("select dibs.why(%s)", (job,)).fetchall()
    return str(sentence)


def rung(db: Connection, listener: Connection) -> list[str]:
    """The queues for which this listener has been notified."""
    numbers = [int(ring.payload) for ring in listener.notifies(timeout=1)]
    return [row[0] for row in db.execute("select queue from dibs.bells() where number = any (%s)", (numbers,))]


def test_expired_tickets_take_no_unit_from_a_live_one(db: Connection, clock: Clock) -> None:
    clock.freeze()
    set_limit(db, kind="k", concurrency=1)
    [holder] = fill(db, 1)
    [held] = take(db, 1)
    fill(db, 20, ttl="30s")
    [live] = fill(db, 1)
    assert take(db, 30) == []
    clock.move(31)
    db.execute("select dibs.extend(%s, %s)", held[:2])
    done(db, [held])
    assert held[0] == holder
    assert [row[0] for row in take(db, 30)] == [live]


def test_repair_rings_for_the_tickets_that_it_unblocks(connect: Connect, db: Connection) -> None:
    set_limit(db, kind="k", concurrency=1)
    fill(db, 2)
    assert len(take(db, 10)) == 1
    db.execute("update dibs.limit_rule set concurrency = 2")  # As if a unit were lost.
    listener = connect()
    listener.execute("listen dibs")
    db.execute("select dibs.repair_limits()")
    assert rung(db, listener) == ["q"]
    assert len(take(db, 10)) == 1


def test_a_dropped_limit_unblocks_the_tickets_behind_locked_ones(connect: Connect, db: Connection) -> None:
    set_limit(db, kind="k", concurrency=0)
    fill(db, 1005)
    assert take(db, 1) == []
    assert take(db, 1) == []
    assert db.execute("select count(*) from dibs.blocked").fetchone() == (1005,)
    other = connect()
    other.execute("begin")
    other.execute(
        "select from dibs.blocked where id = any (array("
        "select id from dibs.blocked order by -priority, due_at, id limit 1000)) for update"
    )
    db.execute("select dibs.drop_limit(kind => 'k')")
    assert db.execute("select count(*) from dibs.blocked").fetchone() == (1000,)
    other.execute("rollback")


def test_why_names_a_limit_whose_free_units_pay_its_debt(db: Connection) -> None:
    set_limit(db, queue="q", concurrency=5)
    [job] = fill(db, 1)
    set_limit(db, queue="q", concurrency=0)
    assert "queue 'q' may run 0 at once" in why(db, job)


def test_why_does_not_let_a_job_wait_for_itself(db: Connection, clock: Clock) -> None:
    clock.freeze()
    db.execute("select dibs.set_group('q', null, '{\"concurrency\": 1}')")
    first, second = fill(db, 2, group="a")
    [held] = take(db, 10)
    assert held[0] == first
    db.execute("select dibs.fail(%s, %s, 'broken', delay => '10 seconds')", held[:2])
    assert take(db, 10) == []
    assert f"waits for job {first}" in why(db, second)
    clock.move(11)
    assert "strict order" not in why(db, first)
    assert f"waits for job {first}" in why(db, second)


def test_a_paused_queue_keeps_no_unit_from_the_workers_of_another(connect: Connect, db: Connection) -> None:
    set_limit(db, kind="k", concurrency=1)
    fill(db, 1)
    [held] = take(db, 1)
    for queue in ("a", "b"):
        fill(db, 1, queue=queue)
        assert take(db, 1, queue) == []
    db.execute("select dibs.pause('a')")
    listener = connect()
    listener.execute("listen dibs")
    done(db, [held])
    assert rung(db, listener) == ["b"]


def test_a_job_behind_one_of_a_paused_queue_is_next_due_by_its_rate(db: Connection, clock: Clock) -> None:
    clock.freeze()
    set_limit(db, kind="k", rate=0.1, burst=1)
    fill(db, 1)
    assert len(take(db, 1)) == 1
    for queue in ("a", "b"):
        fill(db, 1, queue=queue)
        assert take(db, 1, queue) == []
    db.execute("select dibs.pause('a')")
    assert db.execute("select dibs.next_due('{b}') - dibs.now() = '10 seconds'").fetchone() == (True,)


def test_claims_at_the_same_time_share_the_free_units(connect: Connect, db: Connection) -> None:
    set_limit(db, kind="k", concurrency=640)
    fill(db, 700)
    for _ in range(20):
        assert len(take(db, 10)) == 10
    other = connect()
    other.execute("begin")
    assert len(take(other, 10)) == 10
    assert len(take(db, 10)) == 10
    other.execute("commit")


def test_a_queue_without_its_limit_is_rung(connect: Connect, db: Connection) -> None:
    """Its jobs wait in ready, so nothing is unblocked that would ring."""
    db.execute("select dibs.set_limit('q', concurrency => 1)")
    db.execute("select from dibs.enqueue('q', 'k') union all select from dibs.enqueue('q', 'k')")
    db.execute("select from dibs.claim('{q}', 2)")
    listener = connect()
    listener.execute("listen dibs")
    db.execute("select dibs.drop_limit('q')")
    assert rung(db, listener) == ["q"]


def test_repair_rings_for_a_queue_whose_units_were_lost(connect: Connect, db: Connection) -> None:
    db.execute("select dibs.set_limit('q', concurrency => 1)")
    db.execute("select from dibs.enqueue('q', 'k')")
    db.execute("delete from dibs.limit_unit")
    listener = connect()
    listener.execute("listen dibs")
    assert db.execute("select dibs.repair_limits()").fetchall() == [(1,)]
    assert rung(db, listener) == ["q"]
