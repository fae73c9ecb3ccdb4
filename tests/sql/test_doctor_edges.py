"""The doctor at its edges: odd names of roles, many deaths, shards, hidden sessions, and slots without WAL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

import dibs
from dibs.db.schema import migrate
from tests.sql.test_doctor import ahead, found, only, register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dibs.embedded import Server
    from dibs.testing import Clock
    from tests.sql.conftest import Login


@pytest.fixture
def owned(empty_dsn: str, db: psycopg.Connection[Any]) -> Iterator[str]:
    """A database with dibs, whose owner is no superuser and has a name that needs quotes."""
    owner = f"Owner {db.info.backend_pid}"
    name = sql.Identifier(owner)
    db.execute(sql.SQL("create role {} createrole").format(name))
    try:
        with psycopg.connect(empty_dsn, autocommit=True) as other:
            other.execute(sql.SQL("grant create on database {} to {}").format(sql.Identifier(other.info.dbname), name))
        migrate(f"{empty_dsn}&options=-crole%3DOwner%5C%20{db.info.backend_pid}")
        yield empty_dsn
        with psycopg.connect(empty_dsn, autocommit=True) as other:
            other.execute(sql.SQL("drop owned by {}").format(name))
    finally:
        db.execute(sql.SQL("drop owned by {0}; drop role {0}").format(name))


def test_an_owner_whose_name_needs_quotes(owned: str) -> None:
    with psycopg.connect(owned, autocommit=True) as db:
        assert only(db, "blind")[0] == "note"
    with dibs.Client(owned) as client:
        assert client.status(client.enqueue("q", "k").id).state == "ready"


def test_connections_count_also_if_they_are_hidden(owned: str) -> None:
    count = "select count(*) from pg_stat_activity where backend_type = 'client backend'"
    with psycopg.connect(owned, autocommit=True) as db:
        assert only(db, "blind")[0] == "note"
        [counted] = db.execute("select value from dibs.vitals() where name = 'connections'").fetchone() or [0]
        assert (counted,) == db.execute(count).fetchone()


def test_a_busy_queue_in_which_many_jobs_die(client: dibs.Client, clock: Clock, db: psycopg.Connection[Any]) -> None:
    clock.freeze()
    client.enqueue("mail", "k")
    client.complete(client.claim("mail")[0])
    client.upkeep.roll_up()
    db.execute("update dibs.stat set succeeded = 200000 where grain = 'minute'")
    die = (
        "insert into dibs.dead (id, due_at, reason, queue_id, state, ended_at, run, charged, losses, priority)"
        " select gen_random_uuid(), dibs.now(), 'no', q.id, 'failed', dibs.now() - n * interval '1 ms', 1, 1, 0, 5"
        " from dibs.queue as q, generate_series(%s::integer, %s) as n"
    )
    db.execute(die, (1, 1900))
    assert found(db, "dead-jobs") == []
    db.execute(die, (1901, 2100))
    assert only(db, "dead-jobs")[1] == "2100 jobs of queue mail died in the last hour, and 200000 succeeded"
    db.execute(die, (2101, 20000))
    assert only(db, "dead-jobs")[1] == "10000 jobs of queue mail died in the last 00:00:10, and 200000 succeeded"


def test_one_new_chore_is_late_and_not_all_of_them(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.enqueue("mail", "k")
    db.execute("select from dibs.maintain()")
    db.execute("update dibs.chore set done_at = '-infinity', due_at = '-infinity' where name = 'prune'")
    assert only(db, "upkeep")[1] == "a chore is late: prune"


def test_an_index_of_a_table_that_was_never_analysed(db: psycopg.Connection[Any]) -> None:
    db.execute(
        "insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring)"
        " select gen_random_uuid(), now(), 'infinity', 1, 0, 0, 0, 5, false from generate_series(1, 250000)"
    )
    db.execute("select pg_stat_force_next_flush()")
    assert found(db, "bloat") == []


def test_a_login_that_runs_jobs_by_a_group(db: psycopg.Connection[Any], login: Login) -> None:
    group = sql.Identifier(f"group_{db.info.backend_pid}")
    db.execute(sql.SQL("create role {0}; grant dibs_worker to {0}").format(group))
    try:
        login(f"group_{db.info.backend_pid}")
        assert not [message for _, message, _ in found(db, "roles") if "runs jobs" in message]
        login(f"group_{db.info.backend_pid}", "dibs_admin")
        assert len([message for _, message, _ in found(db, "roles") if "runs jobs" in message]) == 1
    finally:
        db.execute(sql.SQL("drop owned by {0}; drop role {0}").format(group))


def test_a_paused_queue_whose_jobs_are_all_blocked(
    client: dibs.Client, clock: Clock, db: psycopg.Connection[Any]
) -> None:
    client.enqueue("mail", "k")
    register(db, "mail", ["other"])
    db.execute("select dibs.park(id, token) from dibs.claim('{mail}')")
    client.queues.pause("mail")
    ahead(clock, hours=2)
    assert "queue mail has been paused" in only(db, "paused")[1]


def test_two_kinds_that_nobody_runs_are_one_finding(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    register(db, "mail", ["k"])
    for kind in ("old", "renamed"):
        client.enqueue("mail", kind)
        db.execute("select dibs.park(id, token) from dibs.claim('{mail}')")
    assert "no live worker of queue 'mail' runs kind 'old' or 'renamed'" in only(db, "unknown-kind")[1]


def test_a_sharded_queue_is_found_by_its_own_name(
    client: dibs.Client, clock: Clock, db: psycopg.Connection[Any]
) -> None:
    client.queues.set("mail", shards=2)
    client.enqueue_many(dibs.NewJob(queue="mail", kind="k", ttl=60, shard_key=str(n)) for n in range(20))
    ahead(clock, minutes=20)
    subjects = "select name, subject from dibs.doctor() where subject like 'mail%%' and name = any(%s)"
    assert db.execute(subjects, (["past-ttl"],)).fetchall() == [("past-ttl", "mail")]
    client.queues.pause("mail")
    ahead(clock, hours=2)
    assert db.execute(subjects, (["paused"],)).fetchall() == [("paused", "mail")]
    client.queues.resume("mail")
    client.upkeep.expire()
    client.enqueue_many(dibs.NewJob(queue="mail", kind="k", shard_key=str(n)) for n in range(40))
    ids = [id for (id,) in db.execute("select id from dibs.ready order by id").fetchall()]
    db.execute("delete from dibs.ready where id = any(%s)", (ids[20:],))
    db.execute(
        "insert into dibs.lease (id, token, claimed_at, lease_until, due_at, expire_at, queue_id, run, charged, losses,"
        " priority) select r.id, gen_random_uuid(), dibs.now(), dibs.now(), r.due_at, r.expire_at, r.queue_id, 1, 1, 0,"
        " r.priority from dibs.ready as r"
    )
    ahead(clock, minutes=5)
    assert db.execute(subjects, (["lost-lease"],)).fetchall() == [("lost-lease", "mail")]


def test_a_replication_slot_whose_wal_is_gone(own_server: Server) -> None:
    with psycopg.connect(own_server.dsn(), autocommit=True) as db:
        db.execute("alter system set max_slot_wal_keep_size = '1MB'")
        db.execute("select pg_reload_conf()")
        db.execute("select pg_create_physical_replication_slot('gone', true)")
        for _ in range(4):
            db.execute("select pg_logical_emit_message(false, 'x', 'y'), pg_switch_wal()")
        db.execute("checkpoint")
        [status] = db.execute("select wal_status from pg_replication_slots").fetchone() or [None]
        assert status == "lost"
        level, message, _ = only(db, "replication-slot")
        assert (level, "slot gone" in message) == ("error", True)


def test_a_failing_schedule_is_a_sentence(client: dibs.Client, clock: Clock, db: psycopg.Connection[Any]) -> None:
    client.queues.set("mail", max_attempts=1)
    client.schedules.set("nightly", dibs.NewJob(queue="mail", kind="k"), interval=3600)
    ahead(clock, hours=2)
    db.execute("select from dibs.run_schedules()")
    client.fail(client.claim("mail")[0], "no")
    db.execute("select from dibs.run_schedules()")
    assert only(db, "schedule-failing")[1].startswith("schedule nightly failed: the last run ended as")


def test_an_install_with_another_search_path_has_no_drift(installed_dsn: str) -> None:
    with psycopg.connect(installed_dsn, autocommit=True) as db:
        db.execute("set search_path = dibs, public")
        db.execute("select dibs._record_installed_code()")
        assert found(db, "drift") == []
