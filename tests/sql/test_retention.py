"""Days come and go; what is alive stays, and nobody waits for it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import dibs

if TYPE_CHECKING:
    from uuid import UUID

    import psycopg

    from dibs.testing import Clock
    from tests.conftest import Connect

DAY = timedelta(days=1)


def partition_of(db: psycopg.Connection[Any], id: UUID, table: str = "job") -> str | None:
    row = db.execute(
        f"select c.relname from dibs.{table} as t join pg_class as c on c.oid = t.tableoid where t.id = %s", (id,)
    ).fetchone()
    return row[0] if row else None


def prune_all(client: dibs.Client) -> list[dibs.types.Pruned]:
    """Prune until nothing is dropped or trimmed any more."""
    done: list[dibs.types.Pruned] = []
    while rows := client.upkeep.prune():
        done += rows
        if not any(row.outcome in {"dropped", "trimmed"} for row in rows):
            break
    return done


def test_days_are_made_a_week_ahead(db: psycopg.Connection[Any], client: dibs.Client, clock: Clock) -> None:
    clock.move(30 * DAY)
    made = [day.name for day in client.upkeep.make_days() if day.outcome == "made"]
    assert len(made) == 18
    assert {day.outcome for day in client.upkeep.make_days()} == {"exists"}
    clock.move(7 * DAY)
    assert partition_of(db, client.enqueue("q", "k").id) in made
    with pytest.raises(dibs.InvalidArgument, match="1 to 366"):
        client.upkeep.make_days(0)


def test_a_live_straggler_survives_and_finishes(db: psycopg.Connection[Any], client: dibs.Client, clock: Clock) -> None:
    year = client.enqueue("q", "next-year", {"n": 1}, delay=365 * DAY)
    done = client.enqueue("q", "done")
    client.complete(client.claim("q")[0])
    held = client.enqueue("q", "held")
    [lease] = client.claim("q", lease=6 * DAY)
    for _ in range(8):
        clock.move(5 * DAY)
        client.extend(lease, 6 * DAY)
        client.upkeep.make_days()
    assert {row.outcome for row in prune_all(client)} == {"dropped"}
    assert [s.state for s in client.status_many([year.id, done.id, held.id])] == ["scheduled", "unknown", "running"]
    assert partition_of(db, year.id) == partition_of(db, held.id) == "job_default"
    assert client.complete(lease, "after its day was pruned") == "ok"
    clock.move(325.5 * DAY)
    [job] = client.claim("q")
    assert (job.id, job.payload) == (year.id, {"n": 1})
    assert client.complete(job, "a year later") == "ok"
    prune_all(client)
    shown = client.show(year.id)
    assert shown
    assert shown["attempts"][0]["result"] == "a year later"
    clock.move(40 * DAY)
    assert dibs.types.Pruned("job", "trimmed", 1) in prune_all(client)
    assert client.status(year.id).state is dibs.State.UNKNOWN


def test_a_job_brought_back_after_its_day_was_pruned(
    db: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    made = client.enqueue("q", "k", delay=20 * DAY, ttl=30 * DAY)
    clock.move(20 * DAY)
    client.fail(client.claim("q")[0], "no", final=True)
    clock.move(20 * DAY)
    client.upkeep.make_days()
    prune_all(client)
    assert partition_of(db, made.id) == "job_default"
    assert client.status(made.id).state is dibs.State.FAILED
    assert client.retry({"ids": [made.id]}).done == 1
    assert client.complete(client.claim("q", wait=5)[0]) == "ok"
    assert client.status(made.id).state is dibs.State.SUCCEEDED


def test_a_dead_row_and_its_job_leave_together(db: psycopg.Connection[Any], client: dibs.Client, clock: Clock) -> None:
    """Every end is covered by retention, and what was never read is not dropped."""
    dead = client.enqueue("q", "k")
    client.fail(client.claim("q")[0], final=True)
    waiting = client.enqueue("q", "k", ttl=timedelta(days=3600))
    clock.move(25 * DAY)
    prune_all(client)
    assert client.status(dead.id).state is dibs.State.FAILED
    clock.move(20 * DAY)
    prune_all(client)
    assert [s.state for s in client.status_many([dead.id, waiting.id])] == ["unknown", "ready"]
    assert db.execute("select count(*) from dibs.dead").fetchone() == (0,)


def test_a_queue_may_keep_less_or_longer_than_the_others(client: dibs.Client, clock: Clock) -> None:
    client.queues.set("brief", retention=5 * DAY, history_retention=3 * DAY)
    client.queues.set("long", retention=100 * DAY, history_retention=100 * DAY)
    ids = {}
    for queue in ("brief", "long", "plain"):
        ids[queue] = client.enqueue(queue, "k").id
        client.complete(client.claim(queue)[0])
    for days, left in ((4, {"brief", "long", "plain"}), (3, {"long", "plain"}), (40, {"long"}), (100, set())):
        clock.move(days * DAY)
        prune_all(client)
        assert {q for q in ids if client.status(ids[q]).state is not dibs.State.UNKNOWN} == left


def test_history_goes_before_its_job(client: dibs.Client, clock: Clock, db: psycopg.Connection[Any]) -> None:
    client.queues.set("q", history_retention=2 * DAY)
    made = client.enqueue("q", "k")
    client.complete(client.claim("q")[0])
    clock.move(5 * DAY)
    prune_all(client)
    assert db.execute("select count(*) from dibs.attempt").fetchone() == (0,)
    assert client.status(made.id).state is dibs.State.SUCCEEDED


def test_a_crowded_day_stays_and_its_ended_jobs_are_trimmed(client: dibs.Client, clock: Clock) -> None:
    client.enqueue_many(dibs.NewJob(queue="q", kind="done", priority=9) for _ in range(20))
    client.complete_many(client.claim("q", 20))
    client.enqueue_many(dibs.NewJob(queue="q", kind="later", delay=300 * DAY) for _ in range(1200))
    clock.move(40 * DAY)
    rows = [client.upkeep.prune() for _ in range(20)]
    assert any(row.outcome == "crowded" for step in rows for row in step)
    assert sum(row.rows or 0 for step in rows for row in step if row.name == "job") == 20
    assert client.queues.depth("q").scheduled == 1200


@pytest.mark.parametrize("holder", ["select * from dibs.job limit 1", "select dibs.enqueue('q', 'k')"])
def test_a_day_in_use_is_left_alone_and_nobody_waits(
    connect: Connect, client: dibs.Client, clock: Clock, holder: str
) -> None:
    """A DROP that waits for a lock blocks every reader behind it."""
    client.enqueue("q", "k")
    clock.move(40 * DAY)
    busy, other = connect(), connect()
    busy.execute("begin")
    busy.execute(holder)
    outcomes = {row.outcome for row in client.upkeep.prune()}
    assert outcomes == {"dropped", "locked"}
    other.execute("set statement_timeout = '1s'")
    other.execute("select dibs.enqueue('q', 'k')")
    assert len(other.execute("select * from dibs.claim('{q}', 10)").fetchall()) > 0
    busy.execute("commit")
    assert {row.outcome for row in prune_all(client)} == {"dropped"}


def test_no_rows_are_deleted_in_a_call_that_drops_a_day(
    client: dibs.Client, clock: Clock, connect: Connect, db: psycopg.Connection[Any]
) -> None:
    """The lock on all attempts lasts until its end, and every run that ends would wait for it."""
    client.enqueue_many(dibs.NewJob(queue="q", kind="k", max_attempts=1) for _ in range(40))
    client.fail_many(client.claim("q", 40), ["no"] * 40)
    clock.move(40 * DAY)
    locks = "select count(*) from pg_locks where pid = pg_backend_pid() and mode = 'AccessExclusiveLock'"
    pruner, steps = connect(), []
    while True:
        with pruner.transaction():
            outcomes = {row[1] for row in pruner.execute("select * from dibs.prune(2)").fetchall()}
            steps.append((outcomes, pruner.execute(locks).fetchone() != (0,)))
        if not outcomes:
            break
    assert [step for step in steps if "trimmed" in step[0]] == [({"trimmed"}, False)] * 2
    assert db.execute("select from dibs.job").fetchall() == []
    assert db.execute("select from dibs.attempt").fetchall() == []


def test_rows_are_trimmed_while_a_day_is_in_use(
    client: dibs.Client, clock: Clock, connect: Connect, db: psycopg.Connection[Any]
) -> None:
    client.queues.set("long", retention=100 * DAY, history_retention=100 * DAY)
    client.enqueue("long", "k")
    clock.move(70 * DAY)
    client.upkeep.make_days()
    brief = client.enqueue("brief", "k")
    client.complete_many(client.claim("brief"))
    clock.move(40 * DAY)
    busy = connect()
    with busy.transaction():
        busy.execute("select from dibs.job, dibs.attempt limit 1")
        outcomes = [row.outcome for row in client.upkeep.prune()]
        assert "locked" in outcomes
        assert "trimmed" in outcomes
    assert client.status(brief.id).state is dibs.State.UNKNOWN


def test_attempts_of_a_dropped_queue_leave_the_default_partition(
    client: dibs.Client, clock: Clock, db: psycopg.Connection[Any]
) -> None:
    clock.move(100 * DAY)
    client.queues.set("gone", history_retention=90 * DAY)
    client.enqueue("gone", "k")
    client.complete_many(client.claim("gone"))
    client.queues.set("stays")
    clock.move(40 * DAY)
    prune_all(client)
    client.queues.drop("gone")
    assert db.execute("select tableoid::regclass::text from dibs.attempt").fetchall() == [("dibs.attempt_default",)]
    prune_all(client)
    assert db.execute("select count(*) from dibs.attempt").fetchone() == (0,)


def test_the_default_partition_is_a_safety_net(client: dibs.Client, clock: Clock, db: psycopg.Connection[Any]) -> None:
    """Maintenance was off for a hundred days: nothing fails, and the days are made as far as that is cheap."""
    clock.move(100 * DAY)
    client.enqueue_many(dibs.NewJob(queue="q") for _ in range(10_500))
    today = [day.name for day in client.upkeep.make_days() if day.outcome == "crowded"]
    assert len(today) == 1
    jobs = client.claim("q", 5)
    assert [a.answer for a in client.complete_many(jobs)] == ["ok"] * 5
    assert partition_of(db, jobs[0].id) == "job_default"
    assert partition_of(db, jobs[0].id, "attempt") != "attempt_default"


def test_maintain_does_it_all_in_one_call(client: dibs.Client, clock: Clock, db: psycopg.Connection[Any]) -> None:
    client.enqueue("q", "lost")
    client.claim("q")
    client.enqueue("q", "late", ttl=10)
    clock.move(60)
    done = dict(db.execute("select chore, counts from dibs.maintain()").fetchall())
    assert (done["rescue"], done["expire"]) == ({"ready": 1}, {"expired": 1})
    clock.move(45 * DAY)
    done = dict(db.execute("select chore, counts from dibs.maintain()").fetchall())
    assert done["make_days"] == {"made": 18}
    assert done["prune"]["dropped"] > 0
