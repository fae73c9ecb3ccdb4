"""The floor's hard cases: what lies below it is found soon, and it never hides what is due."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import dibs
from tests.sql.plans import explained

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    import psycopg

    from dibs.testing import Clock
    from tests.conftest import Connect

FOUND_WITHIN = 2.0


def claim_until(db: psycopg.Connection[Any], wanted: UUID, between: Callable[[], object] = lambda: None) -> float:
    """Claim and complete until a job is among the claimed; how long that took."""
    began = time.monotonic()
    while time.monotonic() - began < 30:
        rows = db.execute("select id, token from dibs.claim('{q}', 10)").fetchall()
        for id, token in rows:
            db.execute("select dibs.complete(%s, %s)", (id, token))
        if wanted in {id for id, _ in rows}:
            return time.monotonic() - began
        between()
    raise AssertionError("never claimed")


def drain(db: psycopg.Connection[Any]) -> None:
    while rows := db.execute("select id, token from dibs.claim('{q}', 100)").fetchall():
        db.execute("select dibs.complete_many(%s, %s)", ([r[0] for r in rows], [r[1] for r in rows]))


def enqueue(conn: psycopg.Connection[Any], **options: Any) -> UUID:
    names = "".join(f", {name} => %s" for name in options)
    row = conn.execute(f"select job_id from dibs.enqueue('q', 'k'{names})", tuple(options.values())).fetchone()
    assert row
    id: UUID = row[0]
    return id


def test_a_transaction_that_commits_10_s_later_is_found_within_2_s(connect: Connect, clock: Clock) -> None:
    claimer, slow, producer = connect(), connect(), connect()
    enqueue(producer)
    drain(claimer)
    slow.execute("begin")
    late = enqueue(slow)
    for _ in range(10):
        clock.move(1)
        enqueue(producer)
        drain(claimer)
    slow.execute("commit")
    assert claim_until(claimer, late) < FOUND_WITHIN


def test_the_same_under_load(connect: Connect, clock: Clock) -> None:
    """With a backlog every batch is full; a late committer must not wait behind it."""
    claimer, slow, producer = connect(), connect(), connect()
    batch = "(select jsonb_agg(jsonb_build_object('queue', 'q', 'kind', 'k')) from generate_series(1, 2000))"
    many = f"select from dibs.enqueue_many({batch})"
    producer.execute(many)
    claimer.execute("select from dibs.claim('{q}', 10)")
    slow.execute("begin")
    late = enqueue(slow)
    clock.move(10)
    for _ in range(20):
        producer.execute(many)
    for _ in range(250):
        claimer.execute("select from dibs.claim('{q}', 10)")
    slow.execute("commit")
    assert claim_until(claimer, late) < FOUND_WITHIN


def test_a_released_and_a_snoozed_job_below_the_floor_are_found(connect: Connect, clock: Clock) -> None:
    claimer, other = connect(), connect()
    first = enqueue(other)
    [(_, token)] = other.execute("select id, token from dibs.claim('{q}')").fetchall()
    clock.move(60)
    for _ in range(5):
        enqueue(other)
    drain(claimer)
    other.execute("select dibs.release(%s, %s)", (first, token))
    assert claim_until(claimer, first) < FOUND_WITHIN
    second = enqueue(other)
    [(_, token)] = other.execute("select id, token from dibs.claim('{q}')").fetchall()
    other.execute("select dibs.snooze(%s, %s, '1 second')", (second, token))
    clock.move(30)
    enqueue(other)
    drain(claimer)
    third = enqueue(other, delay="1 second")
    clock.move(2)
    assert claim_until(claimer, third) < FOUND_WITHIN
    assert other.execute("select (dibs.status(%s)).state", (second,)).fetchone() == ("succeeded",)


def test_a_clock_stepped_back_hides_nothing(connect: Connect, clock: Clock) -> None:
    claimer, producer = connect(), connect()
    enqueue(producer)
    drain(claimer)
    clock.move(-3600)
    early = enqueue(producer)
    [(id,)] = claimer.execute("select id from dibs.claim('{q}')").fetchall()
    assert id == early


def test_a_rolled_back_claim_takes_its_floor_back(connect: Connect, clock: Clock) -> None:
    claimer, producer = connect(), connect()
    clock.freeze()
    first = enqueue(producer)
    clock.move(10)
    claimer.execute("select from dibs.claim('{nothing}')")
    claimer.execute("begin")
    assert claimer.execute("select id from dibs.claim('{q}')").fetchall() == [(first,)]
    claimer.execute("rollback")
    assert claimer.execute("select id from dibs.claim('{q}')").fetchall() == [(first,)]


def test_a_setting_that_is_not_ours_is_ignored(db: psycopg.Connection[Any]) -> None:
    first = enqueue(db)
    for nonsense in ("x", "'); drop table dibs.job; --", "(1,2,3,4,5,6)", '("{9}","{9}",1,1,1,1)', "9" * 10_000):
        db.execute("select set_config('dibs.floor_1', %s, false)", (nonsense,))
        [(id, token)] = db.execute("select id, token from dibs.claim('{q}')").fetchall()
        assert id == first
        db.execute("select dibs.release(%s, %s)", (id, token))
    forged = f'("{{5}}","{{{"9" * 16}}}","{{00000000-0000-0000-0000-000000000000}}","{{0}}",0,0,0,0,0,0)'
    db.execute("select dibs._remember('floor', 1, %s)", (forged,))
    assert db.execute("select id from dibs.claim('{q}')").fetchall() == [(first,)]


def test_a_fresh_connection_starts_from_the_newest_hint(connect: Connect, client: dibs.Client) -> None:
    """An expensive sweep leaves a hint, so that a new connection need not walk the dead rows a pinned horizon keeps."""
    holder, claimer, fresh = connect(), connect(), connect()
    holder.execute("begin isolation level repeatable read")
    holder.execute("select pg_current_xact_id()")
    client.enqueue_many(dibs.NewJob(queue="q", payload=n) for n in range(40_000))
    while rows := claimer.execute("select id, token from dibs.claim('{q}', 2000)").fetchall():
        claimer.execute("select from dibs.complete_many(%s, %s)", ([r[0] for r in rows], [r[1] for r in rows]))
    hints = claimer.execute("select max(swept_at), max((floor).due_us[1]) from dibs.floor_hint").fetchone()
    assert hints
    assert hints[0] is not None
    told, top = "dibs._recall('floor', 1)::dibs.floor", "dibs._micros(dibs.now()) - 250000"
    row = fresh.execute(f"select (dibs._begin_scan('floor', 1, {told}, '{{5}}', {top}, 0)).due_us[1]").fetchone()
    assert row
    assert row[0] == hints[1] > 0
    client.enqueue("q", "after")
    assert [j.kind for j in client.claim("q")] == ["after"]


def test_a_forged_floor_hides_nothing_from_others(connect: Connect, client: dibs.Client) -> None:
    """A sweep shares what it found with fresh connections, and not what its caller's session claims to remember."""
    holder, forger, fresh = connect(), connect(), connect()
    hidden = client.enqueue("q", "k", priority=1)
    client.enqueue("q", "k", priority=9)
    holder.execute("begin isolation level repeatable read")
    holder.execute("select pg_current_xact_id()")
    client.enqueue_many(dibs.NewJob(queue="q", priority=9) for _ in range(20_000))
    client.complete_many(client.claim("q", 10_000) + client.claim("q", 10_000))
    [(top,)] = forger.execute("select dibs._micros(clock_timestamp()) - 300000").fetchall()
    nil = "00000000-0000-0000-0000-000000000000"
    body = f'("{{9,5,1}}","{{0,{top},{top}}}","{{{nil},{nil},{nil}}}","{{0,0,0}}",0,0,0,0,0,0)'
    hints = "select count(*), min((floor).due_us[3]) from dibs.floor_hint where swept_at > dibs._from_micros(%s)"
    while forger.execute(hints, (top,)).fetchone() == (0, None):
        forger.execute("select dibs._remember('floor', 1, %s)", (body,))
        client.enqueue("q", "k", priority=9)
        forger.execute("select from dibs.claim('{q}', 1)")
    row = forger.execute(hints, (top,)).fetchone()
    assert row
    assert row[1] < top
    seen = [row[0] for row in fresh.execute("select id from dibs.claim('{q}', 100)").fetchall()]
    assert hidden.id in seen


def test_dead_rows_in_front_of_the_scan_cost_nothing(connect: Connect, client: dibs.Client, clock: Clock) -> None:
    """With the horizon held back, an ordinary queue falls to a twentieth of its speed."""
    holder, claimer = connect(), connect()
    holder.execute("begin isolation level repeatable read")
    holder.execute("select pg_current_xact_id()")
    costs: list[int] = []
    for _ in range(8):
        client.enqueue_many(dibs.NewJob(queue="q") for _ in range(3000))
        for _ in range(10):
            rows = claimer.execute("select id, token from dibs.claim('{q}', 300)").fetchall()
            claimer.execute("select from dibs.complete_many(%s, %s)", ([r[0] for r in rows], [r[1] for r in rows]))
        clock.move(1)  # What was taken is settled, and the floor may rise above it.
        client.enqueue_many(dibs.NewJob(queue="q") for _ in range(100))
        with explained(claimer) as plans:
            for _ in range(10):
                claimer.execute("select from dibs.claim('{q}', 10)")
        costs.append(sorted(plan.buffers for plan in plans if "gone as" in plan.text)[4])
    assert claimer.execute("select count(*) from dibs.ready").fetchone() == (0,)
    assert costs[-1] < 2 * max(costs[:2]), costs


def test_a_locked_or_expired_head_does_not_hold_the_floor_down(connect: Connect, clock: Clock) -> None:
    holder, claimer, producer = connect(), connect(), connect()
    clock.freeze()
    enqueue(producer, ttl="1 second")
    enqueue(producer)
    clock.move(10)
    holder.execute("begin")
    holder.execute("select from dibs.claim('{q}')")
    later = sorted(enqueue(producer) for _ in range(3))
    clock.move(10)
    assert claimer.execute("select id from dibs.claim('{q}', 1)").fetchall() == [(later[0],)]
    row = claimer.execute("select (dibs._recall('floor', 1)::dibs.floor).ids[1]").fetchone()
    assert row == (later[0],)


def test_a_batch_that_was_committed_late_is_drained_at_once(connect: Connect, clock: Clock) -> None:
    claimer, slow, producer = connect(), connect(), connect()
    enqueue(producer)
    drain(claimer)
    slow.execute("begin")
    late = {enqueue(slow) for _ in range(100)}
    for _ in range(20):
        clock.move(1)
        enqueue(producer)
        drain(claimer)
    slow.execute("commit")
    began = time.monotonic()
    while late and time.monotonic() - began < 30:
        late -= {row[0] for row in claimer.execute("select id from dibs.claim('{q}', 1)").fetchall()}
    assert not late
    assert time.monotonic() - began < 5


def test_a_late_job_is_found_although_who_sweeps_stays_in_its_transaction(
    connect: Connect, client: dibs.Client, clock: Clock
) -> None:
    """An expensive sweep is made by one connection for all, under a lock that ends with its transaction."""
    holder, slow, claimer, stuck = connect(), connect(), connect(), connect()
    holder.execute("begin isolation level repeatable read")
    holder.execute("select pg_current_xact_id()")
    client.queues.set("q")
    slow.execute("begin")
    late = enqueue(slow)
    client.enqueue_many(dibs.NewJob(queue="q", payload=n) for n in range(40_000))
    while rows := claimer.execute("select id, token from dibs.claim('{q}', 2000)").fetchall():
        claimer.execute("select from dibs.complete_many(%s, %s)", ([r[0] for r in rows], [r[1] for r in rows]))
    clock.move(60)
    stuck.execute("begin")
    began = time.monotonic()
    while time.monotonic() - began < 0.5:
        stuck.execute("select from dibs.claim('{q}')")
    client.enqueue("q", "k")
    slow.execute("commit")
    assert claim_until(claimer, late) < 10


def test_a_clock_stepped_back_stops_no_look_back(db: psycopg.Connection[Any]) -> None:
    now, nothing = "dibs._micros(clock_timestamp())", "row(null, null, null, null,"
    ahead = f"{now} + 3600000000"

    def begun(floor: str) -> str:
        return f"(dibs._begin_scan('floor', 1, {nothing} {floor}, 0, 0)::dibs.floor, '{{5}}', 0, {now})).look_back"

    row = db.execute(f"select {begun(f'{ahead}, 100, 0, 0')}, {begun(f'{now} + 19000, 1000, {ahead}, 3')}").fetchone()
    assert row == (4_000_000_000_000_000, 4_000_000)
