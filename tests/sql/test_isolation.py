"""Callers in REPEATABLE READ and SERIALIZABLE: verbs that an older snapshot would mislead refuse, others are right."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any, Literal

import psycopg
import pytest

import dibs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Connect

    Connection = psycopg.Connection[Any]

LEVELS = pytest.mark.parametrize("level", ["repeatable read", "serializable"])
JOB = "'00000000-0000-0000-0000-000000000001'"

READS = {
    "depth", "depth_by_priority", "drain_estimate", "find_jobs", "make_id", "next_due", "now", "preview_schedule",
    "show", "show_schedule", "status", "status_many", "supervised", "why", "workers_wanted",
}  # fmt: skip
"""Volatile, as each of them needs a snapshot that is not its caller's; they change nothing."""

IN_YOUR_TRANSACTION = {
    "enqueue", "enqueue_many", "clone", "supervise", "complete", "complete_many", "run_function", "run_job",
    "run_handler", "begin_function", "record_delivery", "append_error",
}  # fmt: skip
"""What an application does together with its own work: right in every isolation, or refused with 40001."""

ONE_ROW = {
    "allow_function", "beat_worker", "disallow_function", "pause", "pause_schedule", "register_worker", "resume",
    "resume_schedule", "retire_worker", "set_error_retention", "set_queue", "set_stat_retention", "set_strict",
    "set_tasks", "stop_worker", "drop_schedule",
}  # fmt: skip
"""What changes rows in place, under locks: one that was changed since the snapshot raises 40001."""

ARGUMENTS = {
    "begin_delivery": f"{JOB}, {JOB}, 'smtp'", "cancel_key": "'q', 'key'", "cancel_where": "'{}'", "delete": "'{}'",
    "do_chore": "'rescue'", "drop_queue": "'q'", "edit": f"{JOB}, '{{\"priority\": 9}}'", "move": "'{}', 'q'",
    "purge": "'q'", "release_shards": "(select worker from dibs.register_worker('w'))", "retry": "'{}'",
    "snooze": f"{JOB}, {JOB}, '1 s'", "snooze_many": "'{}', '{}', '{}'", "drop_group": "'q', 'group'",
}  # fmt: skip
"""Arguments of verbs that look at them before they look at the isolation."""

GRANTED = """
select p.proname, coalesce((
  select string_agg(format('null::%s', format_type(a.type, null)), ', ' order by a.n)
  from unnest(p.proargtypes::oid[]) with ordinality as a (type, n) where a.n <= p.pronargs - p.pronargdefaults), '')
from pg_proc as p
where p.pronamespace = 'dibs'::regnamespace and p.provolatile = 'v'
  and exists (select from aclexplode(p.proacl) as a where a.grantee <> p.proowner)
order by 1
"""


@LEVELS
def test_every_other_verb_refuses(level: str, db: Connection, client: dibs.Client) -> None:
    """A new verb fails here until it refuses, or is said to be right in an older snapshot."""
    client.queues.set("q")
    db.execute(f"set default_transaction_isolation = '{level}'")
    verbs: dict[str, str] = dict(db.execute(GRANTED).fetchall())
    right = READS | IN_YOUR_TRANSACTION | ONE_ROW
    assert right <= verbs.keys()
    answers: dict[str, str | None] = {}
    for verb in verbs.keys() - right:
        try:
            db.execute(f"select dibs.{verb}({ARGUMENTS.get(verb, verbs[verb])})")
            answers[verb] = "no error"
        except psycopg.Error as error:
            answers[verb] = f"{error.sqlstate} {error}"
    assert {verb: answer for verb, answer in answers.items() if not str(answer).startswith("DI020")} == {}


def older(connect: Connect, level: str) -> Connection:
    """A transaction whose snapshot is taken now."""
    conn = connect()
    conn.execute(f"begin isolation level {level}")
    conn.execute("select count(*) from dibs.migration")
    return conn


@LEVELS
@pytest.mark.parametrize("ring", [True, False])
@pytest.mark.parametrize(
    "put", ["dibs.enqueue('q', 'k')", """dibs.enqueue_many('[{"queue": "q", "kind": "k"}]')"""], ids=["one", "many"]
)
def test_no_job_goes_to_a_queue_that_was_dropped(
    level: str, ring: bool, put: str, connect: Connect, client: dibs.Client, db: Connection
) -> None:
    client.queues.set("q", ring=ring)
    conn = older(connect, level)
    client.queues.drop("q")
    with pytest.raises(psycopg.errors.SerializationFailure):
        conn.execute(f"select {put}; commit")
    conn.execute("rollback")
    conn.execute(f"select {put}")
    assert len(client.claim("q", wait=5)) == 1
    assert db.execute("select count(*) from dibs.ready").fetchone() == (0,)


@LEVELS
def test_a_job_gets_no_policy_that_was_changed_since(level: str, connect: Connect, client: dibs.Client) -> None:
    client.queues.set("q")
    conn = older(connect, level)
    client.queues.set("q", priority=7)
    with pytest.raises(psycopg.errors.SerializationFailure):
        conn.execute("select dibs.enqueue('q', 'k', cost => 2)")


@LEVELS
def test_a_queue_that_is_made_knows_of_limits_that_were_set_since(
    level: str, connect: Connect, client: dibs.Client
) -> None:
    conn = older(connect, level)
    client.limits.set(kind="k", concurrency=1)
    for _ in range(2):
        conn.execute("select dibs.enqueue('q', 'k')")
    conn.execute("commit")
    assert len(client.claim("q", 10)) == 1


@LEVELS
@pytest.mark.parametrize("scope", ["waiting", "unfinished"])
def test_a_holder_that_runs_by_now_keeps_nobody_out_who_only_minds_waiting_ones(
    level: str, scope: Literal["waiting", "unfinished"], connect: Connect, client: dibs.Client
) -> None:
    """Otherwise the work that was done since the job began would be forgotten."""
    client.enqueue("q", "k", dedup_key="same", dedup_scope=scope)
    conn = older(connect, level)
    client.claim("q")
    put = f"select outcome from dibs.enqueue('q', 'k', dedup_key => 'same', dedup_scope => '{scope}')"
    if scope == "unfinished":
        assert conn.execute(put).fetchone() == ("duplicate",)
        return
    with pytest.raises(psycopg.errors.SerializationFailure):
        conn.execute(put)
    conn.execute("rollback")
    assert conn.execute(put).fetchone() == ("enqueued",)


@LEVELS
def test_a_message_is_not_begun_in_an_older_snapshot(level: str, connect: Connect, client: dibs.Client) -> None:
    """It would not see that the holder before had its message accepted after all."""
    client.enqueue("q", "email")
    [job] = client.claim("q")
    conn = older(connect, level)
    with pytest.raises(psycopg.Error) as refused:
        conn.execute("select dibs.begin_delivery(%s, %s, 'smtp')", (job.id, job.token))
    assert refused.value.sqlstate == dibs.errors.WrongIsolation.sqlstate


@LEVELS
def test_a_completion_after_a_heartbeat_is_tried_again(level: str, connect: Connect, client: dibs.Client) -> None:
    client.enqueue("q", "k")
    [job] = client.claim("q")
    conn = older(connect, level)
    client.extend(job)
    with pytest.raises(psycopg.errors.SerializationFailure):
        conn.execute("select dibs.complete(%s, %s)", (job.id, job.token))
    conn.execute("rollback")
    assert conn.execute("select dibs.complete(%s, %s)", (job.id, job.token)).fetchone() == ("ok",)


@LEVELS
def test_a_completion_gives_back_units_of_a_limit_that_was_changed_since(
    level: str, connect: Connect, client: dibs.Client
) -> None:
    client.limits.set(resource="gpu", concurrency=1)
    for _ in range(6):
        client.enqueue("q", "k", resources={"gpu": 1})
    [job] = client.claim("q")
    conn = older(connect, level)
    client.limits.set(resource="gpu", concurrency=3)
    assert len(client.claim("q", 10)) == 2
    conn.execute("select dibs.complete(%s, %s)", (job.id, job.token))
    conn.execute("commit")
    assert len(client.claim("q", 10, wait=5)) == 1
    assert client.upkeep.repair_limits() == 0


class Mixed:
    """Producers and workers in older snapshots, beside claims: what each committed is known."""

    def __init__(self, dsn: str, level: str) -> None:
        self.dsn = dsn
        self.level = level
        self.made: set[Any] = set()
        self.completed: list[Any] = []
        self.errors: list[str] = []
        self.ended = threading.Event()

    def run(self, do: Callable[[Connection, random.Random], None], seed: int) -> None:
        luck = random.Random(seed)
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            while not self.ended.is_set():
                try:
                    do(conn, luck)
                except psycopg.errors.SerializationFailure:
                    conn.execute("rollback")
                except psycopg.Error as error:
                    self.errors.append(f"{error.sqlstate} {error}")
                    return

    def produce(self, conn: Connection, luck: random.Random) -> None:
        conn.execute(f"begin isolation level {self.level}")
        made: set[Any] = set()
        keys = sorted(luck.sample("uvwxyz", 2))  # Two producers of the same keys wait for each other, in one order.
        for key in (*keys, None):
            group, resources = luck.choice(["a", "b", None]), luck.choice([None, '{"gpu": 1}'])
            rows = conn.execute(
                "select job_id, outcome from dibs.enqueue('q', 'k', \"group\" => %s, dedup_key => %s, resources => %s)",
                (group, key, resources),
            )
            made.update(id for id, outcome in rows if outcome != "duplicate")
        conn.execute("commit")
        self.made |= made

    def work(self, conn: Connection, luck: random.Random) -> None:
        jobs = conn.execute("select id, token from dibs.claim('{q}', 4)").fetchall()
        if not jobs:
            return
        ids, tokens = [job[0] for job in jobs], [job[1] for job in jobs]
        follow_up = '[{"queue": "q", "kind": "after"}]'
        for _ in range(20):
            try:
                conn.execute(f"begin isolation level {self.level}")
                for id, token in zip(ids, tokens, strict=True):
                    conn.execute("select dibs.complete(%s, %s, null, %s)", (id, token, luck.choice([None, follow_up])))
                made = conn.execute("select id from dibs.follow_up where parent = any(%s)", (ids,)).fetchall()
                conn.execute("commit")
            except psycopg.errors.SerializationFailure:
                conn.execute("rollback")
                continue
            self.completed += ids
            self.made |= {id for (id,) in made}
            return
        raise AssertionError("a completion never got through")


@LEVELS
def test_nothing_is_lost_or_doubled_when_all_have_older_snapshots(
    level: str, dsn: str, db: Connection, client: dibs.Client
) -> None:
    client.queues.set("q", lease=3600)
    client.limits.set(resource="gpu", concurrency=3)
    client.groups.set("q", "a", concurrency=2)
    # The first job with a group or resources locks its queue: beside locked keys that could be a circle.
    client.enqueue("q", "k", group="a", resources={"gpu": 1})
    client.complete(client.claim("q")[0])
    mixed = Mixed(dsn, level)
    threads = [threading.Thread(target=mixed.run, args=(mixed.produce, n)) for n in range(2)]
    threads += [threading.Thread(target=mixed.run, args=(mixed.work, n)) for n in range(2)]
    for thread in threads:
        thread.start()
    threads[0].join(3)
    mixed.ended.set()
    for thread in threads:
        thread.join()
    assert mixed.errors == []
    assert client.upkeep.repair_limits() == 0
    assert client.upkeep.repair_groups() == 0
    while jobs := client.claim("q", 100, wait=1):
        mixed.completed += [job.id for job in jobs]
        client.complete_many(jobs)
    assert len(mixed.completed) == len(set(mixed.completed)) > 50
    assert set(mixed.completed) == mixed.made
    for table in ("ready", "blocked", "lease", "dead", "fingerprint"):
        assert db.execute(f"select count(*) from dibs.{table}").fetchone() == (0,), table
