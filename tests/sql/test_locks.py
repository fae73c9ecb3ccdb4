"""Locks: none that a stranger can hold, none that outlives its transaction, none that anybody waits for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import dibs
from dibs.db.admin import execute
from dibs.db.schema import migrate

if TYPE_CHECKING:
    from tests.conftest import Connect

EXPENSIVE = "row(null, null, null, null, 0, 5000, 9e15::bigint, 0, 0, 0)::dibs.floor"
BEGUN = f"dibs._begin_scan('floor', 1, {EXPENSIVE}, '{{5}}', 0, dibs._micros(clock_timestamp()) + n * 1000000)"
SWEEPS = f"(({BEGUN}).look_back = dibs._constant('unlimited_look_back_us'))"
SWEEP = f"select bool_or{SWEEPS} from (select 0 as n from generate_series(1, 50)) as tries"
"""Half of the tries sweep where that is allowed."""


def leave_hint(db: psycopg.Connection[Any], age: float, took: float = 0.005) -> None:
    """As if somebody had swept queue 1 that many seconds ago."""
    db.execute(
        "insert into dibs.floor_hint values ('floor', 1, clock_timestamp() - make_interval(secs => %s),"
        f" make_interval(secs => %s), {EXPENSIVE})",
        (age, took),
    )


def test_nothing_takes_an_advisory_lock() -> None:
    lock = re.compile(r"pg_(try_)?advisory_(xact_)?lock")
    files = [path for path in Path(dibs.__file__).parent.rglob("*") if path.suffix in {".py", ".sql"}]
    assert [path.name for path in files if lock.search(path.read_text(encoding="utf-8"))] == []


def test_a_stranger_with_every_lock_stops_nothing(connect: Connect, dsn: str, client: dibs.Client) -> None:
    """Any login may take any advisory lock; dibs took five sorts of them."""
    stranger, db, listener = connect(), connect(), connect()
    stranger.execute(
        "select pg_advisory_lock(k, n) from generate_series(20001, 20005) as k, generate_series(-9, 99) as n"
    )
    db.execute("set statement_timeout = '5s'")
    listener.execute("listen dibs")
    client.enqueue("q", "k")
    listener.execute("select 1")
    assert len(list(listener.notifies(timeout=0))) == 1
    leave_hint(db, 1)
    assert db.execute(SWEEP).fetchone() == (True,)
    client.queues.set("alone", exclusive=True)
    [(worker,)] = db.execute("select worker from dibs.register_worker('w')").fetchall()
    assert db.execute("select name from dibs.hold_shards(%s, '{alone}')", (worker,)).fetchall() == [("alone",)]
    client.complete(client.claim("q")[0])
    assert client.upkeep.roll_up() == 1
    assert {day.outcome for day in client.upkeep.make_days()} == {"exists"}
    assert client.upkeep.prune() == []
    assert {note for (note,) in db.execute("select note from dibs.maintain()")} == {None}
    execute(dsn, "update dibs.code set digest = 'of an older release'")
    assert migrate(dsn, lock_timeout=5).code_changed


def test_a_sweep_that_was_aborted_leaves_no_lock(connect: Connect) -> None:
    one, other = connect(), connect()
    leave_hint(one, 45, took=1)
    one.execute("begin")
    assert one.execute(SWEEP).fetchone() == (True,)
    assert other.execute(SWEEP).fetchone() == (False,), "one at a time"
    with pytest.raises(psycopg.errors.DivisionByZero):
        one.execute("select 1 / 0")
    one.execute("rollback")
    assert other.execute(SWEEP).fetchone() == (True,)


def test_a_sweep_in_an_open_transaction_stops_no_other_for_long(connect: Connect) -> None:
    """After a while the others go ahead, each in its own fortieth of the time."""
    one, other = connect(), connect()
    leave_hint(one, 3600, took=1)
    one.execute("begin")
    assert one.execute(SWEEP).fetchone() == (True,)
    ahead = (
        f"select count(distinct n) filter (where {SWEEPS.replace('clock_timestamp', 'statement_timestamp')})"
        " from generate_series(0, 39) as n, generate_series(1, 50)"
    )
    assert other.execute(ahead).fetchone() == (1,)
    leave_hint(other, 0, took=1)
    assert other.execute(ahead).fetchone() == (0,), "a new hint is waited for"
    assert other.execute("select dibs.forget()").fetchone() == (0,), "and what is locked is left to the next round"


def test_a_sweep_that_never_ends_in_time_lets_every_other_claim_through(db: psycopg.Connection[Any]) -> None:
    """What a claim remembers is gone when it runs into a timeout, so the next one has the same sweep before it."""
    [(sweeps,)] = db.execute(
        f"select count(*) filter (where {SWEEPS}) from (select 0 as n from generate_series(1, 100)) as tries"
    ).fetchall()
    assert 0 < sweeps < 100


def test_nobody_waits_for_a_worker_that_shares_out_shards(connect: Connect, client: dibs.Client) -> None:
    client.queues.set("q", shards=4)
    slow, db = connect(), connect()
    db.execute("set statement_timeout = '5s'")
    one, two = (db.execute("select worker from dibs.register_worker('w')").fetchone()[0] for _ in range(2))  # type: ignore[index]
    hold = "select name from dibs.hold_shards(%s, '{q}') where name is not null"
    with slow.transaction():
        assert len(slow.execute(hold, (one,)).fetchall()) == 4
        assert db.execute(hold, (two,)).fetchall() == []
    for worker in (one, two, one, two):
        db.execute(hold, (worker,))
    held = [set(db.execute(hold, (worker,)).fetchall()) for worker in (one, two)]
    assert [len(names) for names in held] == [2, 2]
    assert held[0].isdisjoint(held[1])
