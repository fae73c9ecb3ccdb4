"""The doctor: each check is made to find what it looks for, and finds nothing when all is well."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec
import psycopg
import pytest

import dibs
from dibs.db.doctor import examine
from dibs.db.schema import migrate
from dibs.info import SEVERITIES, Finding
from dibs.web import findings
from tests.sql.plans import explained

if TYPE_CHECKING:
    from dibs.testing import Clock
    from tests.conftest import Connect
    from tests.sql.conftest import Login

LOCAL = {"drift", "roles", "setting"}
"""What is found in every test's database: its clock is replaced, its owner a superuser, its server unsafe and fast."""


def found(db: psycopg.Connection[Any], name: str) -> list[tuple[str, str, str]]:
    """The level, message and fix of what a check found."""
    return db.execute("select level, message, fix from dibs.doctor() where name = %s", (name,)).fetchall()


def only(db: psycopg.Connection[Any], name: str) -> tuple[str, str, str]:
    """The one thing a check found."""
    [one] = found(db, name)
    return one


def ahead(clock: Clock, **span: float) -> None:
    clock.move(timedelta(**span).total_seconds())


def test_nothing_is_found_where_all_is_well(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.enqueue("mail", "k")
    db.execute("select from dibs.maintain()")
    assert {finding.name for finding in client.doctor()} <= LOCAL


def test_sql_and_python_order_findings_by_the_same_severities() -> None:
    text = (files("dibs.sql") / "functions" / "doctor" / "doctor.sql").read_text()
    [listed] = re.findall(r"array_position\(array\[([^]]+)\], f\.level\)", text)
    assert re.findall(r"'(\w+)'", listed) == list(SEVERITIES)
    [field] = (each for each in msgspec.structs.fields(Finding) if each.name == "level")
    assert get_args(field.type) == SEVERITIES


def test_every_check_is_asked_and_tested() -> None:
    room = files("dibs.sql") / "functions" / "doctor"
    texts = {f.name: f.read_text() for f in room.iterdir() if f.name.endswith(".sql")}
    checks = set(re.findall(r"function dibs\.(_find_\w+)", "".join(texts.values())))
    names = set(re.findall(r"select '([a-z-]+)', (?:'|case|b\.)", "".join(texts.values())))
    tests = (files("tests") / "sql" / "test_doctor.py").read_text()
    assert checks == set(re.findall(r"from dibs\.(_find_\w+)", texts["doctor.sql"]))
    assert [name for name in names if f'"{name}"' not in tests] == []
    page = Path("docs/run/doctor.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)) == names | {"code", "grants", "pooler"}
    assert names >= findings.QUEUES | findings.SCHEDULES | findings.WORKERS | findings.DEAD | findings.LIMITS


def test_an_old_transaction(clock: Clock, db: psycopg.Connection[Any], connect: Connect) -> None:
    other = connect()
    other.execute("begin isolation level repeatable read; select count(*) from dibs.queue")
    assert found(db, "old-transaction") == []
    ahead(clock, minutes=20)
    level, message, fix = only(db, "old-transaction")
    assert (level, str(other.info.backend_pid) in message) == ("warning", True)
    ahead(clock, hours=6)
    assert only(db, "old-transaction")[0] == "error"
    db.execute(fix.removeprefix("end it: ").partition(";")[0])
    assert found(db, "old-transaction") == []


def test_a_prepared_transaction(clock: Clock, db: psycopg.Connection[Any], connect: Connect) -> None:
    other = connect()
    gid = f"doctor-{other.info.backend_pid}"
    other.execute(f"begin; select dibs.set_queue('mail'); prepare transaction '{gid}'")
    try:
        ahead(clock, minutes=20)
        _, message, fix = only(db, "prepared-transaction")
        assert gid in message
        assert f"rollback prepared '{gid}'" in fix
    finally:
        db.execute(f"rollback prepared '{gid}'")
    assert found(db, "prepared-transaction") == []


def test_a_replication_slot_that_nobody_reads(db: psycopg.Connection[Any]) -> None:
    slot = f"doctor_{db.info.backend_pid}"
    db.execute("select pg_create_physical_replication_slot(%s, true)", (slot,))
    try:
        assert [slot in message for _, message, _ in found(db, "replication-slot")] == [True]
    finally:
        db.execute("select pg_drop_replication_slot(%s)", (slot,))


def test_dead_rows_and_bloat(db: psycopg.Connection[Any], connect: Connect) -> None:
    holder = connect()
    holder.execute("begin isolation level repeatable read; select count(*) from dibs.queue")
    db.execute(
        "insert into dibs.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring)"
        " select gen_random_uuid(), now(), 'infinity', 1, 0, 0, 0, 5, false from generate_series(1, 250000)"
    )
    db.execute("delete from dibs.ready")
    db.execute("select pg_stat_force_next_flush()")
    level, message, _ = only(db, "dead-rows")
    assert (level, "dibs.ready has 250000 dead rows" in message) == ("warning", True)
    holder.rollback()
    db.execute("vacuum dibs.ready")
    assert found(db, "dead-rows") == []
    fixes = [fix for _, message, fix in found(db, "bloat") if "ready_pkey" in message]
    assert fixes == ["reindex index concurrently dibs.ready_pkey;"]
    for fix in (fix for *_, fix in found(db, "bloat")):
        db.execute(fix)
    assert found(db, "bloat") == []


def test_a_queue_of_notifications_that_fills(db: psycopg.Connection[Any]) -> None:
    ask = "select name, level from dibs._find_full_notify_queue(%s)"
    assert db.execute(ask, (0.01,)).fetchall() == []
    assert db.execute(ask, (0.2,)).fetchall() == [("notify-queue", "warning")]
    assert db.execute(ask, (0.9,)).fetchall() == [("notify-queue", "error")]


def test_days_that_are_missing_or_should_be_gone(
    clock: Clock, client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    client.enqueue("mail", "k")
    ahead(clock, days=40)
    assert len(found(db, "missing-day")) == 4
    assert "job has" in found(db, "retention")[-1][1] or "attempt has" in found(db, "retention")[-1][1]
    assert len(found(db, "retention")) == 2
    db.execute("select from dibs.make_days()")
    while db.execute("select from dibs.prune() where outcome = 'dropped'").fetchall():
        pass
    assert found(db, "missing-day") + found(db, "retention") == []
    client.queues.pause("mail")
    ahead(clock, days=401)
    assert [message for _, message, _ in found(db, "retention") if "audit" in message] == []
    ahead(clock, days=2)
    assert [message for _, message, _ in found(db, "retention") if "audit" in message]
    db.execute("select dibs.forget()")
    assert [message for _, message, _ in found(db, "retention") if "audit" in message] == []


def test_a_default_partition_that_fills(db: psycopg.Connection[Any]) -> None:
    db.execute(
        "insert into dibs.job (id, due_at, queue_id, priority, kind)"
        " select dibs._new_id(dibs._id_tick(now() + interval '1 year') + n), now(), 1, 5, repeat('k', 150)"
        " from generate_series(1, 60000) as n"
    )
    assert "job_default has" in only(db, "default-partition")[1]


def test_upkeep_that_nobody_does_or_that_fails(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    assert found(db, "upkeep") == [], "nothing was enqueued yet"
    client.enqueue("mail", "k")
    assert only(db, "upkeep")[:2] == ("error", "no chore of the upkeep was ever done")
    db.execute("select from dibs.maintain()")
    assert found(db, "upkeep") == []
    db.execute("update dibs.chore set due_at = now() - interval '1 hour' where name = 'rescue'")
    assert only(db, "upkeep")[1] == "a chore is late: rescue"
    assert found(db, "chore-failing") == []
    db.execute("update dibs.chore set failures = 3, error = 'disk full' where name = 'prune'")
    assert only(db, "chore-failing")[1] == "prune has failed 3 times in a row: disk full"


def register(db: psycopg.Connection[Any], queue: str, kinds: list[str]) -> None:
    facts = json.dumps({"queues": [queue]})
    db.execute("select from dibs.register_worker('w', %s::jsonb, kinds => %s::text[])", (facts, kinds))


def test_a_queue_that_nobody_serves(clock: Clock, client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.enqueue("mail", "k")
    assert found(db, "no-worker") == []
    ahead(clock, minutes=2)
    assert "serves queue mail, whose oldest job has been due for 00:02" in only(db, "no-worker")[1]
    register(db, "mail", ["k"])
    assert found(db, "no-worker") == []


def test_a_kind_that_nobody_runs(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.enqueue("mail", "renamed")
    register(db, "mail", ["k"])
    [held] = client.claim("mail")
    db.execute("select dibs.park(%s, %s)", (held.id, held.token))
    assert "no live worker of queue 'mail' runs kind 'renamed'" in only(db, "unknown-kind")[1]
    register(db, "mail", ["renamed"])
    assert found(db, "unknown-kind") == []


def test_a_backlog_that_grows(clock: Clock, client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.enqueue_many(dibs.NewJob(queue="mail", kind="k") for _ in range(60))
    assert found(db, "backlog") == []
    ahead(clock, minutes=6)
    assert "queue mail grows: 0.1 jobs come and 0.0 go per second" in only(db, "backlog")[1]
    while jobs := client.claim("mail", 100):
        client.complete_many(jobs)
    assert found(db, "backlog") == []


def test_jobs_that_died_lately(clock: Clock, client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.enqueue_many(dibs.NewJob(queue="mail", kind="k") for _ in range(3))
    first, *others = client.claim("mail", 3)
    client.complete(first)
    assert found(db, "dead-jobs") == []
    for job in others:
        client.fail(job, "no", final=True)
    client.cancel(client.enqueue("mail", "k").id)
    client.upkeep.roll_up()
    assert only(db, "dead-jobs")[1] == "2 jobs of queue mail died in the last hour, and 1 succeeded"
    db.execute("update dibs.stat set succeeded = 1000 where grain = 'minute'")
    assert found(db, "dead-jobs") == []  # One in a hundred may.
    db.execute("update dibs.stat set succeeded = 0")
    ahead(clock, hours=2)
    assert found(db, "dead-jobs") == []


def test_a_worker_that_was_lost(clock: Clock, db: psycopg.Connection[Any]) -> None:
    register(db, "mail", ["k"])
    assert found(db, "lost-worker") == []
    ahead(clock, minutes=3)
    level, message, _ = only(db, "lost-worker")
    assert (level, "has not been seen for 00:03" in message) == ("warning", True)
    ahead(clock, hours=2)
    assert found(db, "lost-worker") == []


def test_a_finding_is_told_apart_by_its_subject(clock: Clock, client: dibs.Client) -> None:
    for queue in ("mail", "shop"):
        client.enqueue(queue, "k")
    ahead(clock, minutes=2)
    before = {(f.name, f.subject): f.message for f in client.doctor() if f.name == "no-worker"}
    assert set(before) == {("no-worker", "mail"), ("no-worker", "shop")}
    ahead(clock, minutes=2)
    after = {(f.name, f.subject): f.message for f in client.doctor() if f.name == "no-worker"}
    assert set(after) == set(before)
    assert after != before


def test_a_queue_that_was_paused_and_forgotten(clock: Clock, client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.enqueue("mail", "k")
    client.queues.pause("mail")
    assert found(db, "paused") == []
    ahead(clock, hours=2)
    _, message, fix = only(db, "paused")
    assert "queue mail has been paused for 02:00" in message
    db.execute(fix)
    assert found(db, "paused") == []


def test_jobs_that_are_about_to_expire_and_nobody_ran(
    clock: Clock, client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    """Enqueued on a Friday evening, they would be gone on Saturday evening."""
    clock.freeze()
    client.enqueue_many(dibs.NewJob(queue="mail", kind="k", priority=n) for n in (1, 5))
    client.enqueue("mail", "k", group="g")
    client.enqueue("mail", "k", ttl=dibs.policy.FOREVER)
    client.enqueue("mail", "k", delay=86400 * 2)
    client.enqueue("quotes", "k", ttl=1800)
    parked = client.enqueue("new", "k")
    register(db, "new", [])
    db.execute("select dibs.park(id, token) from dibs.claim('{new}')")
    tried = client.enqueue("tried", "k")
    client.fail(client.claim("tried")[0], "no", delay=0)
    ahead(clock, minutes=25)
    assert found(db, "expiring") == []
    ahead(clock, hours=17)
    assert found(db, "expiring") == []
    ahead(clock, hours=3)
    [new, mail] = sorted(found(db, "expiring"), key=lambda one: "mail" in one[1])
    assert mail[:2] == (
        "warning",
        "3 jobs of queue mail expire within 03:35:00 without a first attempt; the oldest has been due for 20:25:00",
    )
    assert new[1].startswith("a job of queue new expires within 03:35:00")
    for fix in ("dibs worker MODULE:APP --queue mail", "dibs queues set mail --ttl 7d", "dibs.App(ttl="):
        assert fix in mail[2]
    client.queues.pause("mail")
    assert len(found(db, "expiring")) == 1, "nothing expires in a paused queue"
    ahead(clock, hours=10)
    client.upkeep.expire()
    assert client.queues.resume("mail", extend=86400).extended == 3
    assert found(db, "expiring") == []
    assert [client.status(job.id).state for job in (parked, tried)] == ["expired", "expired"]


def test_what_expires_in_a_large_queue_costs_no_more_to_find(
    clock: Clock, client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    client.queues.set("many", shards=2)
    for queue in ("mail", "many"):
        client.enqueue_many(dibs.NewJob(queue=queue, kind="k", shard_key=str(n)) for n in range(8000))
    db.execute("analyze")
    ahead(clock, hours=20)
    with explained(db) as plans:
        both = db.execute("select message from dibs._find_expiring_jobs(dibs.now())").fetchall()
    assert [message.partition(" expire")[0] for (message,) in both] == [
        "1000 jobs or more of queue mail",
        "1000 jobs or more of queue many",
    ]
    assert len(plans) > 3
    assert [plan.text for plan in plans if plan.rows > 4000 or plan.scanned_whole] == []


def test_jobs_that_should_have_expired(clock: Clock, client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.enqueue("mail", "k", ttl=60)
    assert found(db, "past-ttl") == []
    ahead(clock, minutes=20)
    assert "jobs of queue mail are past their TTL" in only(db, "past-ttl")[1]
    client.upkeep.expire()
    assert found(db, "past-ttl") == []


def test_leases_that_nobody_rescued(clock: Clock, client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.enqueue("mail", "k")
    client.claim("mail")
    assert found(db, "lost-lease") == []
    ahead(clock, minutes=5)
    assert "a lease of queue mail ran out" in only(db, "lost-lease")[1]
    client.upkeep.rescue()
    assert found(db, "lost-lease") == []


def test_limits_that_let_nothing_run(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.limits.set(kind="export", concurrency=2)
    assert found(db, "closed-limit") + found(db, "lost-unit") == []
    db.execute("delete from dibs.limit_unit")
    assert only(db, "lost-unit")[1] == "the limit of kind export is 2, but it has 0 units"
    client.limits.set(kind="export", concurrency=0)
    assert "the limit of kind export is 0" in only(db, "closed-limit")[1]


def test_units_that_do_not_add_up(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.limits.set(kind="export", concurrency=2)
    db.execute("insert into dibs.limit_unit (limit_id, units, freed_at) select id, 3, dibs.now() from dibs.limit_rule")
    assert only(db, "lost-unit")[1] == "the limit of kind export is 2, but it has 5 units"
    client.upkeep.repair_limits()
    assert found(db, "lost-unit") == []


def long_kept(db: psycopg.Connection[Any], queue: str) -> None:
    """A queue whose history has been kept for so long that all ids count."""
    db.execute("select dibs.set_queue(%s)", (queue,))
    db.execute("update dibs.queue set history_since = history_since - interval '2 hours'")


def test_jobs_that_lost_their_tickets(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    """Those are found and mended that have neither a ticket nor a run that succeeded; nothing else is touched."""
    long_kept(db, "mail")
    made = client.enqueue_many(dibs.NewJob(queue="mail", kind="k", group="g", priority=n) for n in range(6))
    jobs = {job.id: job for job in client.claim("mail", 4)}
    ended, failed, dead, running = jobs.values()
    client.complete(ended)
    client.fail(failed, "no", delay=0)
    client.fail(dead, "no", final=True)
    assert found(db, "lost-job") == []
    lost = [failed.id, made[0].id]
    db.execute("delete from dibs.ready where id = any(%s)", (lost,))
    level, message, fix = only(db, "lost-job")
    assert level == "error"
    assert message.startswith("2 of at most 4000 jobs that were looked at")
    assert client.status(failed.id).state is dibs.State.SUCCEEDED
    assert db.execute("select lost, restored from dibs.repair_jobs(dry_run => true)").fetchone() == (2, 0)
    assert "dibs.repair_jobs()" in fix
    assert client.upkeep.repair_jobs() == 2
    assert found(db, "lost-job") == []
    assert client.upkeep.repair_jobs() == 0
    again = {job.id: job for job in client.claim("mail", 10)}
    assert set(again) == {made[0].id, made[1].id, failed.id}
    assert (again[failed.id].run, again[failed.id].attempt) == (2, 2)
    assert client.status(running.id).state is dibs.State.RUNNING


def test_a_job_whose_history_was_not_kept_all_the_time_is_not_taken_for_lost(
    clock: Clock, client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    clock.freeze()
    for history in ("none", "all", "failures", "all"):
        client.queues.set("mail", history=history)
        for minutes in (30, 180):
            ahead(clock, minutes=minutes)
            db.execute("select dibs.enqueue('mail', 'k')")
            client.complete(client.claim("mail")[0])
        assert found(db, "lost-job") == []
    db.execute("select dibs.enqueue('mail', 'k', history => 'none')")
    client.complete(client.claim("mail")[0])
    assert client.upkeep.repair_jobs() == 0


def test_a_change_of_one_queues_history_hides_no_lost_job_of_another(
    client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    long_kept(db, "mail")
    client.enqueue("mail", "k")
    db.execute("delete from dibs.ready")
    client.queues.set("other", history_retention=86400 * 3)
    assert len(found(db, "lost-job")) == 1


def test_two_repairs_at_once_restore_a_job_once(
    client: dibs.Client, db: psycopg.Connection[Any], connect: Connect
) -> None:
    """The second waits for the first, and by then the job has run and succeeded."""
    long_kept(db, "mail")
    made = client.enqueue("mail", "k")
    db.execute("delete from dibs.ready")
    [late] = db.execute("select ids from (select (dibs._next_lost_jobs(dibs._nil_id(), 10)).ids) as l").fetchall()
    assert late == ([made.id],)
    assert client.upkeep.repair_jobs() == 1
    client.complete(client.claim("mail")[0])
    assert connect().execute("select dibs._restore_jobs(%s, dibs.now())", late).fetchone() == (0,)


def test_tickets_of_a_queue_that_is_gone(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.enqueue_many(dibs.NewJob(queue="mail", kind="k") for _ in range(3))
    client.fail(client.claim("mail")[0], "no", final=True)
    assert found(db, "gone-queue") == []
    db.execute("delete from dibs.queue")
    number = db.execute("select min(queue_id) from dibs.ready").fetchone()
    assert only(db, "gone-queue")[1] == f"jobs wait, run or are dead in queue number {number[0]}, which is gone"  # type: ignore[index]
    client.upkeep.repair_jobs()
    assert found(db, "gone-queue") == []
    [queue] = client.queues.list()
    assert queue.paused_at is not None
    client.queues.resume(queue.name)
    assert len(client.claim(queue.name, 5)) == 2


def test_jobs_that_wait_for_a_limit_that_is_gone(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.limits.set(kind="k", concurrency=1)
    client.enqueue_many(dibs.NewJob(queue="mail", kind="k") for _ in range(3))
    client.claim("mail", 3)
    assert found(db, "gone-limit") == []
    db.execute("delete from dibs.limit_rule")
    assert "which is gone" in only(db, "gone-limit")[1]
    client.upkeep.repair_limits()
    assert found(db, "gone-limit") == []
    assert client.queues.depth("mail").ready == 2


def test_schedules_that_fail_or_are_late(clock: Clock, client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.queues.set("mail", max_attempts=1)
    client.schedules.set("nightly", dibs.NewJob(queue="mail", kind="k"), interval=3600)
    assert found(db, "schedule-late") == []
    ahead(clock, hours=2)
    assert "schedule nightly should have fired" in only(db, "schedule-late")[1]
    db.execute("select from dibs.run_schedules()")
    assert found(db, "schedule-late") + found(db, "schedule-failing") == []
    client.fail(client.claim("mail")[0], "no")
    db.execute("select from dibs.run_schedules()")
    assert "schedule nightly failed" in only(db, "schedule-failing")[1]


def test_settings_that_hurt(db: psycopg.Connection[Any]) -> None:
    before = {message for _, message, _ in found(db, "setting")}
    assert "fsync is off" in before
    db.execute("set synchronous_commit = off")
    off = {message for _, message, _ in found(db, "setting")}
    db.execute("set synchronous_commit = on")
    on = {message for _, message, _ in found(db, "setting")}
    assert off - on == {"synchronous_commit is off"}


def test_a_server_at_its_end(clock: Clock, db: psycopg.Connection[Any]) -> None:
    major = db.info.server_version // 10000
    ends = {15: datetime(2027, 11, 11, tzinfo=UTC), 18: datetime(2030, 11, 14, tzinfo=UTC)}
    clock.freeze(ends[major] - timedelta(days=10))
    assert only(db, "server-version")[0] == "warning"
    clock.freeze(ends[major] + timedelta(days=10))
    assert only(db, "server-version")[0] == "error"
    clock.freeze(ends[major] - timedelta(days=300))
    assert found(db, "server-version") == []


def test_connections_that_run_out(db: psycopg.Connection[Any], connect: Connect) -> None:
    assert found(db, "connections") == []
    for _ in range(100):
        connect()
    assert "connections are in use" in only(db, "connections")[1]


def test_a_worker_with_a_wrong_clock(db: psycopg.Connection[Any]) -> None:
    register = "select from dibs.register_worker('w', jsonb_build_object('host', %s::text, 'clock', %s::float8))"
    now = datetime.now(UTC).timestamp()
    for host, clock in (("right", now), ("wrong", now + 60)):
        db.execute(register, (host, clock))
    assert "on wrong is 60 s ahead" in only(db, "clock")[1]


def test_roles_with_more_than_they_need(db: psycopg.Connection[Any], login: Login) -> None:
    assert [level for level, *_ in found(db, "roles")] == ["warning"], "the owner is a superuser"
    login("dibs_worker", "dibs_admin")
    assert any("runs jobs and is an administrator" in message for _, message, _ in found(db, "roles"))


def test_code_that_was_changed_by_hand(installed_dsn: str) -> None:
    with psycopg.connect(installed_dsn, autocommit=True) as db:
        assert found(db, "drift") == []
        db.execute("grant execute on function dibs.depth(text) to public")
        db.execute("create function dibs.mine() returns integer language sql return 1")
        db.execute("alter view dibs.chores set (security_barrier = false)")
        changed = "or its grants were changed since dibs was installed"
        assert sorted(message for _, message, _ in found(db, "drift")) == [
            f"function dibs.depth(text) {changed}",
            "function dibs.mine() was added since dibs was installed",
            f"view dibs.chores {changed}",
        ]
        db.execute("drop function dibs.mine()")
        migrate(installed_dsn, repair=True)
        assert found(db, "drift") == []
        db.execute("alter table dibs.audit disable trigger audit_kept")
        db.execute("drop index dibs.audit_job_idx")
        db.execute("alter table dibs.queue add column mine integer")
        db.execute("alter table dibs.ready set (fillfactor = 90)")  # that is for everyone to choose
        changes = [(message.removesuffix(" since dibs was installed"), fix) for _, message, fix in found(db, "drift")]
        assert sorted(message for message, _ in changes) == [
            "index dibs.audit_job_idx was dropped",
            "table dibs.queue was changed",
            "trigger audit_kept on dibs.audit was changed",
        ]
        assert all("by hand" in fix for _, fix in changes)


def test_what_the_doctor_cannot_see(empty_dsn: str, db: psycopg.Connection[Any]) -> None:
    owner = f"owner_{db.info.backend_pid}"
    db.execute(f"create role {owner} createrole")
    try:
        with psycopg.connect(empty_dsn, autocommit=True) as other:
            other.execute(f"grant create on database {other.info.dbname} to {owner}")
        migrate(f"{empty_dsn}&options=-crole%3D{owner}")
        with psycopg.connect(empty_dsn, autocommit=True) as other:
            assert only(other, "blind")[0] == "note"
            other.execute(f"grant pg_read_all_stats to {owner}")
            assert found(other, "blind") == []
            other.execute(f"drop owned by {owner}")
    finally:
        db.execute(f"drop owned by {owner}; drop role {owner}")


def test_what_is_seen_from_outside(dsn: str, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another release there than here, a wrong clock here, and grants that are wrong."""
    outside = {"code", "clock", "grants", "pooler"}
    assert {finding.name for finding in examine(dsn)} & outside == set()
    db.execute("update dibs.code set digest = 'of another release'")
    db.execute("grant select on dibs.job to public")
    monkeypatch.setattr("dibs.db.doctor.MOST_OFF", -1.0)
    found = {finding.name: finding.message for finding in examine(dsn)}
    assert outside & found.keys() == outside - {"pooler"}
    assert "functions of another release" in found["code"]
    assert "the clock of this machine" in found["clock"]
    assert "job to public" in found["grants"]
    db.execute("update dibs.migration set version = 99 where version = 1")
    assert "version 99" in {finding.name: finding.message for finding in examine(dsn)}["code"]


def test_confined_roles_are_refused(db: psycopg.Connection[Any], client: dibs.Client, login: Login) -> None:
    client.queues.set("mail")
    assert login("dibs_observer").doctor()
    with pytest.raises(dibs.NotPermitted, match="confined to some queues"):
        login("dibs_observer", queues=["mail"]).doctor()
