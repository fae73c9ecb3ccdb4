"""Chores: when they are due, who does them, and what they leave alone."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from psycopg import sql

import dibs
from tests.sql.test_races import Later, later

if TYPE_CHECKING:
    import psycopg

    from dibs.testing import Clock
    from tests.conftest import Connect

__all__ = ["later"]


def test_a_schedule_without_a_next_slot_is_looked_at_once_per_second(
    client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    client.schedules.set("s", dibs.NewJob(queue="q", kind="k"), interval=60)
    client.schedules.pause("s")
    row = db.execute("select outcome, wait from dibs.do_chore('schedule')").fetchone()
    assert row == ("done", timedelta(seconds=1))


@pytest.mark.parametrize("function", ["_read_chore", "_lock_chore"])
def test_a_chore_that_another_process_has_just_done_is_not_done_again(
    connect: Connect, db: psycopg.Connection[Any], later: Later, function: str
) -> None:
    [body] = db.execute("select prosrc from pg_proc where proname = %s", (function,)).fetchone() or [""]
    waiting = str(body).replace("begin\n", "begin\n  perform pg_advisory_xact_lock_shared(22);\n", 1)
    db.execute(
        sql.SQL(
            "create or replace function dibs.{}(name text) returns dibs.chore language plpgsql volatile as {}"
        ).format(sql.Identifier(function), sql.Literal(waiting))
    )
    one, other = connect(), connect()
    one.execute("select pg_advisory_lock(22)")
    answer = later.start(other, "select outcome from dibs.do_chore('rescue')")
    assert one.execute("select outcome from dibs.do_chore('rescue')").fetchone() == ("done",)
    one.execute("select pg_advisory_unlock(22)")
    assert answer.result() == [("early",)]


def test_forget_leaves_a_worker_whose_row_is_locked(
    clock: Clock, connect: Connect, db: psycopg.Connection[Any]
) -> None:
    db.execute(
        "insert into dibs.worker (name, started_at, seen_at, facts)"
        " select n, dibs.now(), dibs.now(), '{}' from generate_series(1, 2) as n"
    )
    clock.move(8 * 86400)
    other = connect()
    other.execute("begin")
    other.execute("select from dibs.worker where name = '1' for update")
    db.execute("set statement_timeout = '10s'")
    db.execute("select dibs.forget()")
    assert db.execute("select name from dibs.worker").fetchall() == [("1",)]
    other.execute("rollback")
    db.execute("select dibs.forget()")
    assert db.execute("select name from dibs.worker").fetchall() == []


def test_a_missing_queue_is_made_again_beside_one_of_the_name_it_would_get(
    client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    client.enqueue("mail", "k")
    [number] = db.execute("select id from dibs.queue").fetchone() or [0]
    db.execute("delete from dibs.queue")
    client.queues.set(f"recovered-{number}")
    made = [f"recovered-{number}-2"]
    assert db.execute("select queues from dibs.repair_jobs(dry_run => true)").fetchone() == (made,)
    assert db.execute("select queues from dibs.repair_jobs()").fetchone() == (made,)
    assert db.execute("select queues from dibs.repair_jobs()").fetchone() == ([],)
    client.queues.resume(made[0])
    assert len(client.claim(made[0])) == 1
