"""Roles that are confined to some queues: no view and no verb tells them of another queue, or lets them touch it.

What is tried comes from the catalogue: every column of every view, and every function that a role may call. A function
that is not described here fails the test until it is.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql

from dibs.operation import ACTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import dibs
    from tests.sql.conftest import Login

OURS, THEIRS = "mine", "hush"
"""Two queues, and the beginning of the name of everything that belongs to them."""


class World:
    """A queue with everything that can belong to one, in every table; all names begin with the queue's."""

    def __init__(self, db: psycopg.Connection[Any], client: dibs.Client, name: str) -> None:
        self.name = name
        self.role = f"{name}_team_{db.info.backend_pid}"
        db.execute(sql.SQL("create role {} nologin").format(sql.Identifier(self.role)))
        db.execute(f"create schema {name}_app")
        db.execute(f"create function {name}_app.run(p jsonb) returns jsonb language sql return dibs.envelope_ok()")
        db.execute(f"revoke execute on function {name}_app.run from public")
        db.execute(f"grant execute on function {name}_app.run to {self.role}")
        db.execute("select dibs.allow_function(%s)", (f"{name}_app.run(jsonb)",))
        db.execute("select dibs.set_queue(%s, '{\"lease\": 3600}')", (name,))  # However slow this machine is.
        db.execute("select dibs.set_queue(%s, '{\"exclusive\": true}')", (f"{name}-only",))
        db.execute("select dibs.set_group(%s, %s, '{\"weight\": 2}')", (name, f"{name}-group"))
        for scope in ("queue", "kind", "resource"):
            db.execute(f"select dibs.set_limit({scope} => %s, concurrency => 9)", (name,))
        tasks = [{"kind": f"{name}.kind", "queue": name}]
        db.execute("select dibs.set_tasks(%s)", (json.dumps(tasks),))
        facts = {"queues": [name]}
        self.worker, self.number = db.execute(
            "select worker, number from dibs.register_worker(%s, %s)", (f"{name}-worker", json.dumps(facts))
        ).fetchall()[0]
        db.execute("select from dibs.hold_shards(%s, %s)", (self.worker, [f"{name}-only"]))
        job = {"queue": name, "kind": f"{name}.kind"}
        rule = {"cron": "0 3 * * *"}
        schedules = [{"name": f"{name}-nightly", "rule": rule, "job": job}]
        db.execute("select from dibs.declare_schedules(%s, %s)", (f"{name}-app", json.dumps(schedules)))
        db.execute("select dibs.trigger(%s)", (f"{name}-nightly",))
        db.execute("select dibs.supervise(%s, '{}', queue => %s)", (f"{name}/7", name))
        client.complete(client.claim(name)[0])
        self._run_jobs(db, client)
        self.waiting = client.enqueue(name, f"{name}.kind", dedup_key=f"{name}-key", delay=60).id
        db.execute("select dibs.confine(%s, %s)", (self.role, [name, f"{name}-only"]))
        db.execute("select dibs.roll_up()")
        self.ids = [str(row[0]) for row in db.execute("select id from dibs.jobs where queue = %s", (name,)).fetchall()]

    def _run_jobs(self, db: psycopg.Connection[Any], client: dibs.Client) -> None:
        made = client.enqueue(self.name, f"{self.name}.failed")
        for job in client.claim(self.name, 9):
            if job.id == made.id:
                client.fail(job, f"{self.name} failed", final=True)
            else:
                client.complete(job)
        self.running = client.enqueue(self.name, f"{self.name}.kind", group=f"{self.name}-group").id
        [job] = client.claim(self.name)
        assert job.id == self.running
        client.extend(job, progress={"message": f"{self.name} progress"})
        db.execute("select dibs.begin_delivery(%s, %s, %s)", (job.id, job.token, f"{self.name}-smtp"))
        db.execute("select dibs.append_error(%s, %s)", (f"{self.name} error", job.id))

    def told(self, text: str) -> list[str]:
        """What a text says of this world."""
        return [word for word in [self.name, str(self.worker), *self.ids] if word in text]


@pytest.fixture
def worlds(db: psycopg.Connection[Any], client: dibs.Client) -> Iterator[tuple[World, World]]:
    """Ours and theirs."""
    made = World(db, client, OURS), World(db, client, THEIRS)
    yield made
    for world in made:
        db.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(world.role)))


LEAK = """create function pg_temp.leak(a text) returns boolean language plpgsql cost 0.0000001 as $$ begin
  raise notice '%', a; return true; end $$"""
"""A condition that tells what it is asked about, and that the planner would rather ask first than any other."""


def test_no_view_tells_a_confined_role_of_another_queue(
    db: psycopg.Connection[Any], login: Login, worlds: tuple[World, World]
) -> None:
    """A caller's condition may run before the view's own, and say in a notice or an error what it saw."""
    ours, theirs = worlds
    columns = db.execute(
        "select c.relname, quote_ident(a.attname) from pg_class as c"
        " join pg_attribute as a on a.attrelid = c.oid and a.attnum > 0"
        " where c.relnamespace = 'dibs'::regnamespace and c.relkind = 'v' order by 1, a.attnum"
    ).fetchall()
    everybodys = {"chores"}
    for view in {view for view, _ in columns} - everybodys:
        seen = str(db.execute(f"select to_jsonb(v)::text from dibs.{view} as v").fetchall())
        assert ours.told(seen), f"the world has nothing for {view} to show"
        assert theirs.told(seen), f"the world has nothing for {view} to hide"
    client = login("dibs_observer", ours.role)
    with psycopg.connect(client.dsn, autocommit=True) as conn:
        conn.execute(LEAK)
        heard: list[str] = []
        conn.add_notice_handler(lambda note: heard.append(note.message_primary or ""))
        for view, column in columns:
            heard.clear()
            seen = str(conn.execute(f"select * from dibs.{view} where pg_temp.leak({column}::text)").fetchall())
            assert not theirs.told(seen + str(heard)), f"{view}.{column}"
            if column in {"name", "queue"} and view not in everybodys:
                assert ours.told(seen), f"{view} hides what is ours"
            cast = f"case when {column}::text ~ '{THEIRS}' then {column}::text else '1' end"
            conn.execute(f"select count(*) from dibs.{view} where ({cast})::integer = 1")


def test_every_view_is_a_barrier(db: psycopg.Connection[Any]) -> None:
    assert db.execute(
        "select relname from pg_class where relnamespace = 'dibs'::regnamespace and relkind = 'v'"
        " and not coalesce(reloptions @> '{security_barrier=true}', false)"
    ).fetchall() == []  # fmt: skip


ACTING = [f"dibs_{action}" for action in ACTIONS]
"""What people may be allowed to do; tried all at once."""

NOTHING: tuple[str, ...] = ("",)
"""For functions whose arguments name nothing that could be of another queue."""

FILTERED = (
    """filter => '{"queue": "<queue>"}'""",
    """filter => '{"ids": ["<job>"]}', after => '<job>'""",
    """filter => '{"kind": "<kind>", "reason": "<queue>%"}', dry_run => true""",
    """filter => '{"queue": "mine", "kind": "none"}', continues => <operation>""",
)
"""For verbs on many jobs."""

DESCRIBED: dict[str, tuple[str, ...]] = {
    "append_error": ("message => 'm', job_id => '<job>'",),
    "beat_worker": ("worker => '<worker>'", "worker => '<own_worker>', kinds => array['<kind>']"),
    "begin_delivery": ("id => '<job>', token => '<token>', provider => 'p', handlers => array['<function>']",),
    "begin_function": ("name => '<function>'",),
    "bells": NOTHING,
    "bury_unreadable": ("queues => array['<queue>']", "queues => array['mine', '<queue>']"),
    "cancel": ("id => '<job>'",),
    "cancel_key": ("queue => '<queue>', dedup_key => '<key>'", "queue => 'mine', dedup_key => '<key>'"),
    "cancel_where": FILTERED,
    "cancel_many": ("ids => array['<job>']::uuid[]",),
    "check_envelope": ("result => '{\"success\": true}', name => 'n'",),
    "claim": (
        "queues => array['<queue>']",
        "queues => array['<shard>']",
        "queues => array['mine', '<queue>']",
        "queues => array['mine'], worker => '<worker>'",
        "queues => array['mine'], token => '<token>', repeats => true",
    ),
    "complete": ("id => '<job>', token => '<token>'",),
    "complete_many": ("ids => array['<job>']::uuid[], tokens => array['<token>']::uuid[]",),
    "confined_to": NOTHING,
    "declare_limits": (
        """limits => '[{"kind": "<kind>", "concurrency": 9}, {"kind": "<queue>", "concurrency": 9}]'""",
    ),
    "declare_schedules": (
        "app => '<app>', schedules => '[]'",
        """app => 'a', schedules => '[{"name": "n", "rule": {"interval": 9}, "job": {"queue": "<queue>", "kind": "k"}}]'""",  # noqa: E501
    ),
    "delete": FILTERED,
    "delivery_stage": ("id => '<job>'",),
    "depth": ("name => '<queue>'",),
    "depth_by_priority": ("queue => '<queue>'",),
    "counters": NOTHING,
    "doctor": NOTHING,
    "do_chore": tuple(
        f"name => '{chore}', force => true"
        for chore in ("rescue", "schedule", "expire", "roll_up", "repair_groups", "repair_limits", "forget", "prune")
    ),
    "drain_estimate": ("queue => '<queue>'",),
    "clone": ("id => '<job>'",),
    "payloads": ("ids => array['<job>']::uuid[]",),
    "edit": ("id => '<job>', changes => '{\"priority\": 9}'",),
    "workers_wanted": ("queue => '<queue>'", "queue => '<shard>'", ""),
    "enqueue": (
        "queue => '<queue>', kind => 'k'",
        "queue => 'mine', kind => '<kind>', id => dibs.make_id(), dedup_key => '<key>', \"group\" => '<key>'",
        "queue => 'mine', kind => 'k', shard_key => '<key>', resources => '{\"<queue>\": 1}'",
    ),
    "enqueue_many": ("""jobs => '[{"queue": "<queue>", "kind": "k"}]'""",),
    "expire": ("chunk => 1", "chunk => 1, after => '<job>'"),
    "extend": ("id => '<job>', token => '<token>'",),
    "extend_many": ("ids => array['<job>']::uuid[], tokens => array['<token>']::uuid[]",),
    "fail": ("id => '<job>', token => '<token>', error => 'e'",),
    "fail_many": ("ids => array['<job>']::uuid[], tokens => array['<token>']::uuid[]",),
    "find_function": ("name => '<function>'",),
    "find_jobs": (
        """filter => '{"queue": "<queue>"}'""",
        """filter => '{"ids": ["<job>"]}', before => '<job>'""",
        """filter => '{"kind": "<kind>"}'""",
        """filter => '{"queue": "mine", "dedup_key": "<key>"}'""",
        """filter => '{"group": "<key>", "reason": "<queue>%"}'""",
    ),
    "find_task": ("kind => '<kind>'", "kind => '<near_kind>'"),
    "fire": (
        "name => '<schedule>', revision => <revision>, slots => '{}', upcoming => array[now() + interval '1 day']",
    ),
    "forget": NOTHING,
    "function_flaw": ("oid => 0",),
    "groups": ("queue => '<queue>'",),
    "hold_shards": (
        "worker => '<own_worker>', queues => array['<shard>']",
        "worker => '<worker>', queues => array['mine']",
    ),
    "id_time": ("id => '<job>'",),
    "maintain": NOTHING,
    "make_days": NOTHING,
    "make_id": NOTHING,
    "move": (
        *(f"{call}, queue => 'mine'" for call in FILTERED),
        """filter => '{"queue": "mine"}', queue => '<queue>'""",
    ),
    "next_due": ("queues => array['<queue>']",),
    "now": NOTHING,
    "park": ("id => '<job>', token => '<token>'",),
    "park_many": ("ids => array['<job>']::uuid[], tokens => array['<token>']::uuid[]",),
    "pause": ("queue => '<queue>'", "queue => '<shard>'"),
    "pause_schedule": ("name => '<schedule>'", "name => '<near_schedule>'"),
    "preview_schedule": ("name => '<schedule>'", "name => '<near_schedule>'"),
    "prune": NOTHING,
    "record_delivery": ("id => '<job>', token => '<token>', step => 'accepted'",),
    "register_worker": ("name => 'w', kinds => array['<kind>']",),
    "release": ("id => '<job>', token => '<token>'",),
    "release_many": ("ids => array['<job>']::uuid[], tokens => array['<token>']::uuid[]",),
    "release_shards": ("worker => '<own_worker>', queues => array['<shard>']", "worker => '<worker>'"),
    "repair_groups": NOTHING,
    "repair_limits": NOTHING,
    "progress": ("id => '<job>', token => '<token>', progress => null",),
    "progress_many": (
        "ids => array['<job>']::uuid[], tokens => array['<token>']::uuid[], progress => array[null::jsonb]",
    ),
    "rescue": NOTHING,
    "envelope_error": ("error => 'e'",),
    "envelope_invalid": ("message => 'm'",),
    "envelope_ok": NOTHING,
    "resume": ("queue => '<queue>'", "queue => '<queue>', extend => '1 h'"),
    "resume_schedule": ("name => '<schedule>'",),
    "retry": FILTERED,
    "retire_worker": ("worker => '<worker>'",),
    "roll_up": NOTHING,
    "run_function": ("name => '<function>', payload => '{}'",),
    "run_handler": (
        "id => '<job>', token => '<token>', name => '<function>', payload => '{}'",
        "id => '<job>', token => '<token>', name => '<function>', payload => '{}', error => 'e'",
    ),
    "run_job": ("id => '<job>', token => '<token>', name => '<function>', payload => '{}'",),
    "run_schedules": NOTHING,
    "queue_settings": ("queue => '<queue>'",),
    "set_queue": ("name => '<queue>', policy => '{\"max_attempts\": 3}'",),
    "show": ("id => '<job>'",),
    "show_schedule": ("name => '<schedule>'", "name => '<near_schedule>'"),
    "set_tasks": (
        """tasks => '[{"kind": "k", "queue": "<queue>"}]'""",
        """tasks => '[{"kind": "<kind>", "queue": "mine"}]'""",
    ),
    "snooze": ("id => '<job>', token => '<token>', delay => '1 s'",),
    "snooze_many": (
        "ids => array['<job>']::uuid[], tokens => array['<token>']::uuid[], delays => array[interval '1 s']",
    ),
    "status_many": ("ids => array['<job>']::uuid[]",),
    "statistics": (
        "queue => '<queue>'",
        "kind => '<kind>'",
        "since => '1 day'",
        "since => '1 day', every => '1 hour', by => '{}'",
    ),
    "status": ("id => '<job>'",),
    "stop_worker": ("number => <number>",),
    "supervise": (
        "name => '<process>', payload => '{}', queue => 'mine'",
        "name => '<process>', payload => '{}', queue => '<queue>', kind => '<kind>', options => '{}'",
    ),
    "supervised": ("name => '<process>'", "name => '<process>', queue => '<queue>'"),
    "trigger": ("name => '<schedule>'", "name => '<near_schedule>'"),
    "undo": ("operation => <operation>", "operation => <operation>, after => '<job>', continues => <operation>"),
    "unpark": ("worker => '<own_worker>'", "worker => '<worker>'"),
    "version": NOTHING,
    "vitals": NOTHING,
    "why": ("id => '<job>'",),
}
"""How each function that a role below the administrator may call is called, with the name of something. Each is tried
with a name of the other queue, and with one that does not exist."""

UPKEEP = {"do_chore", "expire", "forget", "maintain", "make_days", "prune", "rescue", "roll_up", "run_schedules"}
"""What may change things of every queue, and tells of none."""

HARMLESS = {
    "ahead", "at", "backoff", "bodies", "body", "chunk", "completes", "content_type",
    "cost", "count", "cpu",
    "deadline", "dedup", "dedup_for", "dedup_scope", "delay", "delays", "detail", "dry_run", "due_at", "errors",
    "every", "facts", "final", "finals", "follow_ups", "force", "fresh", "headers", "history", "lease", "lease_cap",
    "lease_growth", "max", "max_attempts", "memory", "now", "on_duplicate", "payload", "priority", "progress", "rate",
    "reason", "result", "results",
    "run_time", "slots", "source", "span", "target", "trouble", "ttl",
}  # fmt: skip
"""Arguments that name nothing, or what is tried by itself."""


class Sweep:
    """Calls functions as a confined login, with names of the other queue and with names of nothing."""

    def __init__(self, db: psycopg.Connection[Any], worlds: tuple[World, World]) -> None:
        self.db = db
        self.ours, self.theirs = worlds
        [(self.revision,)] = db.execute("select revision from dibs.schedule where name like 'hush%'").fetchall()
        db.execute('select from dibs.cancel_where(\'{"queue": "hush", "kind": "none"}\')')
        [(self.operation,)] = db.execute("select max(operation) from dibs.audits").fetchall()
        self.tables = " union all ".join(
            f"select '{name}', t::text, to_jsonb(t) ->> 'queue_id' = any (%(queues)s) from dibs.{name} as t"
            f" where t::text ~ %(told)s or to_jsonb(t) ->> 'queue_id' = any (%(queues)s)"
            for (name,) in db.execute(
                "select relname from pg_class where relnamespace = 'dibs'::regnamespace and relkind in ('r', 'p')"
                " and not relispartition order by 1"
            )
        )
        numbers = db.execute("select array_agg(id::text) from dibs.queue where name like 'hush%'").fetchall()
        self.mentions = {"told": "|".join([THEIRS, *self.theirs.ids]), "queues": numbers[0][0]}
        self.seen = self.everything()

    def everything(self) -> tuple[set[Any], set[Any]]:
        """Every row of every table that tells of them, and those that are in their queues."""
        rows = self.db.execute(self.tables, self.mentions).fetchall()
        return set(rows), {row for row in rows if row[2]}

    def names(self, prefix: str, job: Any) -> dict[str, str]:
        """What is put into a call, of a world whose names begin like this."""
        return {
            "queue": prefix, "shard": f"{prefix}-only", "job": str(job), "key": f"{prefix}-key", "app": f"{prefix}-app",
            "schedule": f"{prefix}-nightly", "near_schedule": f"{prefix}-nightl", "kind": f"{prefix}.kind",
            "near_kind": f"{prefix}.kin", "process": f"{prefix}/7", "function": f"{prefix}_app.run",
            "worker": str(uuid4()), "own_worker": str(self.ours.worker), "token": str(uuid4()),
            "revision": str(self.revision), "number": str(self.theirs.number if prefix == THEIRS else 0),
            "operation": str(self.operation if prefix == THEIRS else 0),
        }  # fmt: skip

    def outcome(self, conn: psycopg.Connection[Any], call: str, names: dict[str, str]) -> tuple[str, str]:
        """What a call answers, or how it is refused; and the same without what differs from call to call."""
        statement = re.sub(r"<(\w+)>", lambda found: names[found[1]], f"select to_jsonb(f)::text from dibs.{call} as f")
        told = answered(conn, statement)
        for given in sorted(names.values(), key=len, reverse=True):
            if given in statement and len(given) > 3:
                told = told.replace(given, "X")
        bare = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "U", told)
        return told, re.sub(r"[\d.:+T-]+", "N", bare)


def answered(conn: psycopg.Connection[Any], statement: str) -> str:
    """The rows, or how it was refused; a call that was written wrongly is not refused but wrong."""
    try:
        return str(conn.execute(statement).fetchall())
    except psycopg.Error as error:
        if error.sqlstate in {"42883", "42601", "42703", "22P02"}:
            raise
        told = error.diag
        return f"{error.sqlstate} {told.message_primary} {told.message_hint} {told.message_detail}"


@pytest.mark.parametrize("roles", [["dibs_producer"], ["dibs_worker"], ["dibs_observer"], ACTING], ids=lambda r: r[0])
def test_no_verb_tells_a_confined_role_of_another_queue_or_touches_it(
    db: psycopg.Connection[Any], login: Login, worlds: tuple[World, World], roles: list[str]
) -> None:
    granted = {
        name: set(arguments or ())
        for name, arguments in db.execute(
            "select p.proname, p.proargnames[:p.pronargs] from pg_proc as p"
            " where p.pronamespace = 'dibs'::regnamespace and exists ("
            "   select from unnest(%s::text[]) as r where has_function_privilege(r, p.oid, 'execute'))"
            " and not (%s and has_function_privilege('dibs_observer', p.oid, 'execute'))",
            (roles, roles == ACTING),
        )
    }
    sweep = Sweep(db, worlds)
    client = login(*roles, sweep.ours.role)
    with psycopg.connect(client.dsn, autocommit=True) as conn:
        for name in sorted(granted, key=lambda name: (name in UPKEEP, name)):
            assert name in DESCRIBED, f"{name} is new: say how it is called"
            used = {argument for call in DESCRIBED[name] for argument in re.findall(r"(\w+)\"? =>", call)}
            assert granted[name] <= used | HARMLESS, f"{name} has arguments that are not described"
            for arguments in DESCRIBED[name]:
                compare(sweep, conn, name, arguments)


def compare(sweep: Sweep, conn: psycopg.Connection[Any], name: str, arguments: str) -> None:
    """What is of another queue is answered for as if it did not exist, and stays as it is."""
    call = f"{name}({arguments})"
    for job in (sweep.theirs.waiting, sweep.theirs.running) if "<job>" in call else (uuid4(),):
        told, hidden = sweep.outcome(conn, call, sweep.names(THEIRS, job))
        assert not sweep.theirs.told(told), f"{call} tells of the other queue: {told}"
        # An id is a place in an order, too: the one that does not exist stands right beside the one that does.
        _, missing = sweep.outcome(conn, call, sweep.names("zqxw", UUID(int=job.int ^ 1)))
        assert hidden == missing, f"{call} tells what is there from what is not"
        if name not in UPKEEP:
            before, after = sweep.seen, sweep.everything()
            assert before[0] <= after[0], f"{call} changed something of the other queue"
            assert before[1] == after[1], f"{call} put something into the other queue"
            sweep.seen = after
