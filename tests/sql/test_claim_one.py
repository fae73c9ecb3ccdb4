"""Claims of one job in quick succession start from the same floor: they take what any other claim would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.sql.plans import explained

if TYPE_CHECKING:
    import psycopg

    from dibs.testing import Clock
    from tests.conftest import Connect

    Connection = psycopg.Connection[Any]

REST = (
    "select dibs._remember('floor', q.id, row(f.priorities, f.due_us, f.ids, f.high_us, t.far, f.sweep_took, t.far,"
    " f.near_step, t.far, 0)::dibs.floor::text) from dibs.queue as q"
    " cross join lateral (select (dibs._recall('floor', q.id)::dibs.floor).*) as f"
    " cross join (select dibs._micros(clock_timestamp()) + 3000000000 as far) as t"
    " where q.name = 'q'"
)


@pytest.fixture
def claimer(db: Connection, connect: Connect) -> Connection:
    """Has claimed a job of ``q``, and will look back in an hour only."""
    [(constants,)] = db.execute("select pg_get_functiondef('dibs._constant'::regproc)").fetchall()
    db.execute(constants.replace("(20000)", "(3600000000)"))
    enqueue(db)
    conn = connect()
    assert claim(conn) is not None
    conn.execute(REST)
    return conn


def enqueue(conn: Connection, **options: Any) -> Any:
    names = "".join(f", {name} => %s" for name in options)
    row = conn.execute(f"select job_id from dibs.enqueue('q', 'k'{names})", tuple(options.values())).fetchone()
    assert row
    return row[0]


def claim(conn: Connection) -> Any:
    """The id of the next job."""
    row = conn.execute("select id from dibs.claim('{q}')").fetchone()
    return row and row[0]


def is_quick(conn: Connection) -> bool:
    """Whether the next claim needs no look at the floor's own table, and writes none."""
    with explained(conn) as plans:
        assert claim(conn) is not None
    taken = [plan for plan in plans if "Delete on dibs.ready" in plan.text or "Delete on ready" in plan.text]
    assert len(taken) == 1
    return "Insert on" in taken[0].text


def test_the_next_claim_of_one_is_quick_and_the_first_is_not(db: Connection, claimer: Connection) -> None:
    for _ in range(3):
        enqueue(db)
    assert is_quick(claimer)
    assert is_quick(claimer)
    claimer.execute("reset all")
    assert not is_quick(claimer)


def test_it_hands_out_what_any_claim_does(db: Connection, claimer: Connection, connect: Connect, clock: Clock) -> None:
    clock.freeze()
    given: dict[str, Any] = {
        "payload": '{"n": 1}', "headers": '{"a": "b"}', "max_attempts": 3, "lease": "7 minutes", "ttl": "1 day"
    }  # fmt: skip
    for _ in range(2):
        enqueue(db, **given)
    columns = (
        "queue, kind, payload, body, content_type, headers, priority, run, attempt, max_attempts, losses,"
        " claimed_at, lease_until, lease_until - claimed_at, deadline - claimed_at"
    )
    quick = claimer.execute(f"select {columns} from dibs.claim('{{q}}')").fetchone()
    usual = connect().execute(f"select {columns} from dibs.claim('{{q}}')").fetchone()
    assert quick == usual is not None
    kept = db.execute("select to_jsonb(l) - 'id' - 'token' - 'due_at' - 'expire_at' from dibs.lease as l order by l.id")
    first, *rest = [row[0] for row in kept.fetchall()][1:]
    assert rest == [first]


def test_a_priority_that_is_new_goes_first(db: Connection, claimer: Connection) -> None:
    enqueue(db)
    urgent = enqueue(db, priority=9)
    assert claim(claimer) == urgent


def test_what_another_holds_is_passed_and_what_is_not_due_stays(
    db: Connection, claimer: Connection, clock: Clock
) -> None:
    first = enqueue(db)
    clock.move(1)
    second = enqueue(db)
    enqueue(db, delay="1 hour")
    expiring = enqueue(db, ttl="1 minute")
    with db.transaction():
        db.execute("select from dibs.ready where id = %s for update", (first,))
        assert claim(claimer) == second
    clock.move(120)
    assert claim(claimer) == first
    assert claim(claimer) is None
    assert db.execute("select (dibs.status(%s)).state", (expiring,)).fetchone() != ("running",)


@pytest.mark.parametrize(
    "change",
    [
        "select dibs.pause('q')",
        "select dibs.set_limit(queue => 'q', concurrency => 1)",
        "select dibs.set_limit(kind => 'k', concurrency => 1)",
    ],
)
def test_what_stops_a_claim_stops_a_quick_one(db: Connection, claimer: Connection, change: str) -> None:
    enqueue(db)
    enqueue(db)
    db.execute(change)
    assert claim(claimer) is None


def test_newest_first_and_groups_are_served_in_their_own_way(db: Connection, claimer: Connection) -> None:
    enqueue(db)
    newest = enqueue(db)
    db.execute("""select dibs.set_queue('q', '{"newest_first": true}')""")
    assert claim(claimer) == newest


def test_a_clock_that_was_stepped_back_hides_nothing(db: Connection, claimer: Connection, clock: Clock) -> None:
    clock.move(-3600)
    early = enqueue(db)
    assert claim(claimer) == early


def test_a_quick_claim_that_is_rolled_back_leaves_its_job(db: Connection, claimer: Connection) -> None:
    first = enqueue(db)
    claimer.execute("begin")
    assert claim(claimer) == first
    claimer.execute("rollback")
    assert claim(claimer) == first


def test_the_floor_is_raised_soon_although_claims_are_quick(db: Connection, connect: Connect, clock: Clock) -> None:
    """What was taken is walked past for 20 ms at most: then a claim raises the floor."""
    pin, claimer = connect(), connect()
    for _ in range(4):
        db.execute(
            "select from dibs.enqueue_many((select jsonb_agg(jsonb_build_object('queue', 'q', 'kind', 'k'))"
            " from generate_series(1, 500)))"
        )
    clock.move(1)  # No floor rises into the last 250 ms, and a quick machine claims all of them within that time.
    pin.execute("begin isolation level repeatable read")
    pin.execute("select count(*) from dibs.ready")
    for _ in range(1500):
        claimer.execute("select from dibs.claim('{q}')")
    below = db.execute(
        "select count(*) from dibs.lease as l where (dibs._micros(l.due_at), l.id) >= ((%s::dibs.floor).due_us[1],"
        " (%s::dibs.floor).ids[1])",
        claimer.execute("select dibs._recall('floor', 1), dibs._recall('floor', 1)").fetchone(),
    ).fetchone()
    assert below is not None
    assert below[0] < 200
