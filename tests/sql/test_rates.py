"""Rates of kinds and resources: how many start per second, in all queues and groups together."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import dibs
from tests.sql.test_limits import done, fill, set_limit, take, units

if TYPE_CHECKING:
    from dibs.testing import Clock
    from tests.conftest import Connect


def kinds(rows: list[tuple[Any, ...]]) -> list[str]:
    return sorted(row[2] for row in rows)


def states(db: psycopg.Connection[Any], kind: str) -> dict[str, int]:
    return dict(db.execute("select state, count(*) from dibs.jobs where kind = %s group by 1", (kind,)).fetchall())


@pytest.mark.parametrize("options", [{}, {"group": "acme"}], ids=["plain", "grouped"])
def test_a_rate_of_a_kind_counts_in_all_queues(db: psycopg.Connection[Any], clock: Clock, options: Any) -> None:
    clock.freeze()
    set_limit(db, kind="call", rate=5, burst=2)
    fill(db, 4, "call", "a", **options)
    fill(db, 4, "call", "b", **options)
    fill(db, 2, "other", "a", **options)
    first = take(db, 10, "a")
    assert kinds(first) == ["call", "call", "other", "other"]
    assert take(db, 10, "b") == [], "the rate is spent, in every queue"
    assert states(db, "call") == {"running": 2, "blocked": 6}
    clock.move(0.2)
    assert kinds(take(db, 10, "b")) == ["call"], "one more in a fifth of a second"
    done(db, first)
    assert take(db, 10, "a") == take(db, 10, "b") == [], "what ended does not count"
    clock.move(60)
    assert kinds(take(db, 10, "a")) == ["call", "call"], "after a pause no more than the burst"


def test_a_rate_of_a_resource_counts_jobs_and_not_units(db: psycopg.Connection[Any], clock: Clock) -> None:
    clock.freeze()
    set_limit(db, resource="partner", rate=1, burst=3, concurrency=10)
    fill(db, 3, "sync", "a", resources={"partner": 4})
    fill(db, 3, "push", "b", resources={"partner": 1})
    assert kinds(take(db, 10, "a")) == ["sync", "sync"], "its units are held"
    assert kinds(take(db, 10, "b")) == ["push"], "and its rate is spent by the jobs that started"
    assert units(db) == {"partner": (10, 10)}
    clock.move(1)
    assert kinds(take(db, 10, "b")) == ["push"]
    assert db.execute("select used, free, rate, burst from dibs.limits").fetchall() == [(10, 0, 1.0, 3)]


def test_why_names_the_rate_that_a_blocked_job_waits_for(
    db: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    clock.freeze()
    set_limit(db, kind="call", rate=0.5)
    fill(db, 2, "call")
    (started,) = take(db, 10)
    (waits,) = [row[0] for row in db.execute("select id from dibs.jobs where state = 'blocked'")]
    assert client.why(waits).startswith("It is due, but of kind call no more than 0.5 start in a second.")
    [(due,)] = db.execute("select dibs.next_due('{q}') - dibs.now()").fetchall()
    assert due.total_seconds() == pytest.approx(2, abs=0.01)
    assert db.execute("select dibs.next_due('{other}')").fetchone() == (None,), "other queues sleep on"
    clock.move(2)
    assert [row[0] for row in take(db, 10)] == [waits]
    assert started[0] != waits


def test_a_rate_is_changed_and_taken_away(connect: Connect, db: psycopg.Connection[Any], clock: Clock) -> None:
    clock.freeze()
    set_limit(db, kind="call", rate=1)
    fill(db, 50, "call")
    assert len(take(db, 100)) == 1
    set_limit(db, kind="call", rate=10)
    clock.move(1)
    assert len(take(db, 100)) == 10
    set_limit(db, kind="call", concurrency=20)
    assert len(take(db, 100)) == 9, "those that run count"
    set_limit(db, kind="call", concurrency=20, rate=1)
    assert take(db, 100) == []
    db.execute("select dibs.drop_limit(kind => 'call')")
    assert len(take(connect(), 100)) == 30
    assert db.execute("select count(*) from dibs.limit_rate").fetchone() == (0,)


def test_a_claim_that_is_rolled_back_spends_nothing(
    connect: Connect, db: psycopg.Connection[Any], clock: Clock
) -> None:
    clock.freeze()
    set_limit(db, kind="call", rate=1, burst=3)
    fill(db, 5, "call")
    other = connect()
    other.autocommit = False
    assert len(take(other, 10)) == 3
    assert take(db, 10) == [], "another claim holds the rate"
    other.rollback()
    assert len(take(db, 10)) == 3


def test_many_claimers_never_start_more_than_the_rate(
    connect: Connect, db: psycopg.Connection[Any], clock: Clock
) -> None:
    clock.freeze()
    set_limit(db, kind="call", rate=100, burst=20)
    for queue in ("a", "b"):
        fill(db, 200, "call", queue)
    conns = [connect() for _ in range(4)]
    started = 0
    with ThreadPoolExecutor(4) as pool:
        for step in range(11):
            started += sum(pool.map(lambda n: len(take(conns[n], 15, "ab"[n % 2])), range(4)))
            while rows := take(db, 15, "a") + take(db, 15, "b"):
                started += len(rows)
            assert started == 20 + 10 * step
            clock.move(0.1)


def test_jobs_returned_because_of_their_size_cost_no_tokens(db: psycopg.Connection[Any], clock: Clock) -> None:
    clock.freeze()
    db.execute("select dibs.set_queue('q', '{\"payload_limit\": 40000000}')")
    set_limit(db, kind="call", rate=1, burst=10)
    for _ in range(4):
        db.execute("select dibs.enqueue('q', 'call', body => convert_to(repeat('x', 30000000), 'UTF8'))")
    assert len(take(db, 10)) == 2, "a claim hands out 64 MB"
    spent = db.execute("select extract(epoch from tat - dibs.now()) from dibs.limit_rate").fetchone()
    assert spent == (pytest.approx(2),)


def test_a_task_declares_its_rate(dsn: str, client: dibs.Client) -> None:
    app = dibs.App(dsn, queue="q")

    @app.task(name="call", rate=1000, concurrency=5)
    def call() -> None: ...

    call.enqueue_many(call.call() for _ in range(3))
    app.run_worker(drain=True, upkeep=False)
    (limit,) = client.limits.list()
    assert (limit.scope, limit.name, limit.concurrency, limit.rate) == ("kind", "call", 5, 1000)
    assert [job.state for job in client.find_jobs().jobs] == ["succeeded"] * 3
    for rate in (0, -1, 10**7):
        with pytest.raises(dibs.InvalidArgument, match="a task's rate is"):
            app.task(name=f"wrong {rate}", rate=rate)(lambda: None)


def test_declared_rates_and_operators_changes(db: psycopg.Connection[Any]) -> None:
    def declare(**limit: Any) -> str:
        given = psycopg.types.json.Jsonb([{"kind": "call", **limit}])
        row = db.execute("select answer from dibs.declare_limits(%s)", (given,)).fetchone()
        assert row
        return str(row[0])

    def kept() -> Any:
        columns = "concurrency, rate, declared, declared_rate"
        return db.execute(f"select {columns} from dibs.limit_rule where is_set").fetchone()

    assert [declare(rate=5), declare(rate=5), declare(rate=6, concurrency=2)] == ["created", "unchanged", "changed"]
    set_limit(db, kind="call", concurrency=2, rate=1)
    assert (declare(rate=6, concurrency=2), kept()) == ("unchanged", (2, 1.0, 2, 6.0))
    assert (declare(concurrency=2), kept()) == ("unchanged", (2, 1.0, 2, None)), "what was set by hand stays"
    assert (declare(rate=3, concurrency=2), kept()) == ("changed", (2, 3.0, 2, 3.0))
    assert (declare(), kept()) == ("removed", None)
    for wrong in ("5", 0, -1, 10**7, [1]):
        with pytest.raises(psycopg.DatabaseError, match="the rate of kind 'call' is a number"):
            declare(rate=wrong)
