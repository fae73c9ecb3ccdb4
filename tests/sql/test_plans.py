"""Hot statements use their index whatever the statistics say, and hot updates are HOT."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import dibs
from dibs.db import calls
from dibs.ids import IdMaker
from tests.sql.plans import explained

if TYPE_CHECKING:
    import psycopg

    from dibs.testing import Clock
    from tests.conftest import Connect


def use_every_hot_verb(db: psycopg.Connection[Any], count: int = 6) -> None:
    db.execute(
        "select from dibs.enqueue_many((select jsonb_agg(jsonb_build_object('queue', 'q', 'kind', 'k', 'priority', 9))"
        " from generate_series(1, %s)))",
        (count,),
    )
    rows = db.execute("select id, token from dibs.claim('{q}', %s)", (count,)).fetchall()
    assert len(rows) == count
    for verb, (id, token) in zip(("extend", "complete", "fail", "release", "snooze"), rows, strict=False):
        extra = ", delays => array[interval '1 hour']" if verb in {"fail", "release", "snooze"} else ""
        db.execute(f"select from dibs.{verb}_many(array[%s], array[%s]{extra})", (id, token))
    ids = [r[0] for r in rows]
    db.execute("select from dibs.status_many(%s)", (ids,))
    db.execute("select from dibs.cancel_many(%s)", (ids,))
    for _ in range(2):
        db.execute("select from dibs.claim('{q}', 10)")


def fill(db: psycopg.Connection[Any], rows: int) -> None:
    """Put that many tickets into each hot table, as they would be after a long backlog."""
    db.execute("select from dibs.enqueue('q', 'k', delay => '1 hour')")
    day = str(IdMaker().make(1)[0])[:13]
    for table, columns, values in (
        ("ready", "due_at, expire_at, queue_id, run, charged, losses, priority, ring",
         "now() + interval '2 hours', 'infinity', 1, 0, 0, 0, 5, false"),
        ("lease", "token, due_at, expire_at, claimed_at, lease_until, queue_id, run, charged, losses, priority",
         "gen_random_uuid(), now(), 'infinity', now(), 'infinity', 1, 1, 1, 0, 5"),
        ("job", "due_at, queue_id, priority, kind", "now(), 1, 5, 'k'"),
    ):  # fmt: skip
        # Ids of today in their order, written by hand: a million of dibs.make_id() would take too long.
        db.execute(
            f"insert into dibs.{table} (id, {columns})"
            f" select ('{day}-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, {values}"
            f" from generate_series(1, {rows}) as n"
        )


def assert_good_plans(db: psycopg.Connection[Any]) -> None:
    with explained(db) as plans:
        use_every_hot_verb(db)
    assert len(plans) > 10
    assert [plan.text for plan in plans if plan.scanned_whole] == []
    assert [plan.text for plan in plans if plan.buffers > 1500] == []


@pytest.mark.parametrize("rows", [0, 1, 150_000])
def test_hot_statements_use_their_index(connect: Connect, rows: int) -> None:
    """In a connection that planned while everything was empty, and in one that plans afterwards."""
    old, new = connect(), connect()
    old.execute("analyze")
    use_every_hot_verb(old)
    fill(new, rows)
    assert_good_plans(old)
    new.execute("analyze")
    use_every_hot_verb(new)
    assert_good_plans(new)


def test_midnight(connect: Connect, clock: Clock) -> None:
    """A partition analyzed while empty and then filled, in one long connection: the plans and their cost stay."""
    db = connect()
    clock.freeze(datetime(2026, 6, 30, 23, 0, tzinfo=UTC))
    db.execute("select from dibs.make_days()")
    db.execute("analyze")
    costs = []
    for _ in range(2):
        for _ in range(10):
            db.execute(
                "select from dibs.enqueue_many((select jsonb_agg(jsonb_build_object('queue', 'q', 'kind', 'k'))"
                " from generate_series(1, 2000)))"
            )
        db.execute("select from dibs.claim('{q}', 200)")
        with explained(db) as plans:
            rows = db.execute("select id, token from dibs.claim('{q}', 200)").fetchall()
            db.execute("select from dibs.complete_many(%s, %s)", ([r[0] for r in rows], [r[1] for r in rows]))
        assert len(rows) == 200
        assert [plan.text for plan in plans if plan.scanned_whole] == []
        costs.append(sum(plan.buffers for plan in plans))
        clock.move(7200)
    assert costs[1] < 1.5 * costs[0]


def test_heartbeats_are_hot_updates(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    client.enqueue_many(dibs.NewJob(queue="q") for _ in range(50))
    rows = db.execute("select id, token from dibs.claim('{q}', 50)").fetchall()
    for n in range(10):
        held = [r[0] for r in rows], [r[1] for r in rows], [f'{{"done": {n}}}'] * 50
        db.execute("select from dibs.extend_many(%s, %s, null, %s::jsonb[])", held)
    db.execute("select pg_stat_force_next_flush()")
    with db.cursor() as cursor:
        cursor.execute(
            "select n_tup_upd, n_tup_hot_upd, (select sum(n_tup_upd) from pg_stat_user_tables where schemaname = 'dibs'"
            " and relname ~ '^(ready|job|attempt|dead|blocked)') from pg_stat_user_tables where relname = 'lease'"
        )
        row = cursor.fetchone()
    assert row
    updates, hot, elsewhere = row
    assert updates >= 500
    assert hot > 0.9 * updates
    assert elsewhere == 0


def test_a_completion_costs_one_transaction_id_and_no_multixact(
    db: psycopg.Connection[Any], client: dibs.Client
) -> None:
    """No EXCEPTION block's subtransactions, no foreign key's multixacts."""
    client.enqueue_many(dibs.NewJob(queue="q") for _ in range(1000))
    before = db.execute("select pg_current_xact_id()::text::bigint, mxid_age('1'::xid)").fetchone()
    rows = db.execute("select id, token from dibs.claim('{q}', 1000)").fetchall()
    db.execute("select from dibs.extend_many(%s, %s)", ([r[0] for r in rows], [r[1] for r in rows]))
    db.execute("select from dibs.complete_many(%s, %s)", ([r[0] for r in rows], [r[1] for r in rows]))
    after = db.execute("select pg_current_xact_id()::text::bigint, mxid_age('1'::xid)").fetchone()
    assert before
    assert after
    assert after[0] - before[0] <= 10
    assert after[1] == before[1]


def test_a_list_of_jobs_or_errors_reads_no_more_than_it_shows(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    """Views are barriers: what a list asks for must still reach their indexes."""
    client.enqueue_many(dibs.NewJob(queue="q") for _ in range(3000))
    db.execute("select dibs.append_error('e') from generate_series(1, 3000)")
    db.execute("analyze")
    before = client.find_jobs(limit=1).jobs[0].id
    errors = calls.channels.errors(None, None, None, None, 10)
    with explained(db) as plans:
        db.execute("select * from dibs.jobs limit 10")
        db.execute("select * from dibs.jobs where id < %s limit 10", (before,))
        db.execute(errors.sql, errors.args)
    assert len(plans) >= 3
    assert [plan.text for plan in plans if plan.rows > 20] == []


def test_a_list_counts_the_runs_of_the_jobs_it_shows_and_no_others(
    client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    """The attempts of a job that succeeded are in the history: a look into its index for each job that is listed."""
    made = client.enqueue_many(dibs.NewJob(queue="q") for _ in range(2000))
    client.complete_many(client.claim("q", 2000))
    db.execute(
        "insert into dibs.attempt (id, token, claimed_at, ended_at, queue_id, run, outcome)"
        " select a.id, a.token, a.claimed_at, a.ended_at, a.queue_id, n + 1, 'snoozed' from dibs.attempt as a"
        " cross join generate_series(1, 3000) as n where a.id = %s",
        (made[0].id,),
    )
    db.execute("analyze")
    find = calls.operate.find_jobs({}, 10, None)
    with explained(db) as plans:
        rows = db.execute(find.sql, find.args).fetchall()
        db.execute("select attempts from dibs.jobs limit 10")
    assert [job.attempts for job in find.read(rows).jobs] == [1] * 10
    assert [plan.text for plan in plans if plan.rows > 100] == []
    [snoozer] = client.find_jobs({"ids": [made[0].id]}).jobs
    assert (snoozer.state, snoozer.attempts) == ("succeeded", None), "there are too many to count in a list"
