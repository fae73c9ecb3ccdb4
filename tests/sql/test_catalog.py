"""What the catalogue must say: who may do what, and what no object may be."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql as composed

import dibs
from dibs import errors, sql
from dibs.states import DEAD, Outcome, State

if TYPE_CHECKING:
    from collections.abc import Iterator


ROLES = list(sql.ROLES)
FOUR = {*ROLES[:4], "nobody"}
LOOKING = {"dibs_observer", "dibs_read", "dibs_admin"}
HOT = [
    "ready",
    "blocked",
    "lease",
    "job",
    "attempt",
    "fingerprint",
    "dead",
    "group_key",
    "turn",
    "limit_unit",
    "limit_rate",
]

INVOKER = {"run_function", "run_job", "run_handler"}
"""What runs others' functions does so with the caller's own rights."""


def declared() -> dict[str, set[str]]:
    """Who may call what: grants.sql is the one declaration, and docs/run/security.md shows it."""
    verbs = set(re.findall(r"\w+", (files("dibs.sql") / "grants.sql").read_text(encoding="utf-8")))
    granted = {verb: sql.granted_to(verb) for verb in verbs}
    return {role: {verb for verb in verbs if role in granted[verb]} for role in ROLES}


ALLOWED = declared()

THROTTLED = {
    "_measure_workers",
    "claim",
    "now",
    "_take_newest",
    "_take_oldest",
    "_take_simple",
    "_end_scan",
    "forget",
    "_measure_pressure",
    "_read_pressure",
    "_refresh_noisy_rotation",
    "_take_grouped",
    "_unit_hint",
    "_take_units",
    "_first_blocked",
    "do_chore",
    "_record_chore_step",
    "_find_dead_rows",
    "_find_late_chores",
}
"""What reads the real clock: the clock itself, and what throttles."""


@pytest.fixture
def logins(admin_dsn: str, db: psycopg.Connection[Any]) -> Iterator[dict[str, str]]:
    """A login for each role, and one with none."""
    names = {role: f"login_{role}_{db.info.backend_pid}" for role in [*ROLES, "nobody"]}
    for role, name in names.items():
        db.execute(composed.SQL("create role {} login").format(composed.Identifier(name)))
        if role != "nobody":
            db.execute(composed.SQL("grant {} to {}").format(composed.Identifier(role), composed.Identifier(name)))
    yield names
    with psycopg.connect(admin_dsn, autocommit=True) as conn:
        for name in names.values():
            conn.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", (name,))
    for name in names.values():
        db.execute(composed.SQL("drop owned by {0}; drop role {0}").format(composed.Identifier(name)))


def test_each_role_may_call_its_verbs_and_no_other(db: psycopg.Connection[Any]) -> None:
    functions = db.execute(
        "select p.oid, p.proname from pg_proc as p where p.pronamespace = 'dibs'::regnamespace"
    ).fetchall()
    assert {name for _, name in functions} >= set().union(*ALLOWED.values())
    for role in ROLES:
        for oid, name in functions:
            allowed = db.execute("select has_function_privilege(%s, %s::oid, 'execute')", (role, oid)).fetchone()
            assert allowed == (name in ALLOWED[role],), f"{role} and {name}"


def test_nobody_else_may_call_anything(db: psycopg.Connection[Any]) -> None:
    """Functions are executable by PUBLIC until revoked, even after CREATE OR REPLACE."""
    assert db.execute(
        "select p.proname from pg_proc as p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a"
        " where p.pronamespace = 'dibs'::regnamespace and a.grantee = 0"
    ).fetchall() == []  # fmt: skip


def test_no_role_may_touch_a_table(db: psycopg.Connection[Any]) -> None:
    tables = db.execute(
        "select oid, relkind from pg_class where relnamespace = 'dibs'::regnamespace"
        " and relkind in ('r', 'p', 'v', 'S')"
    ).fetchall()
    for role in [*ROLES, "public"]:
        for oid, kind in tables:
            for right in ("select", "insert", "update", "delete", "truncate"):
                if kind == "S" and right not in {"select", "update"}:
                    continue
                row = db.execute("select has_table_privilege(%s, %s::oid, %s)", (role, oid, right)).fetchone()
                may_look = kind == "v" and right == "select" and role in LOOKING
                assert row == (may_look,), f"{role} {right} {oid}"


def test_each_role_tries_for_real(dsn: str, logins: dict[str, str], client: dibs.Client) -> None:
    made = client.enqueue("q", "k")
    tries = {
        "enqueue": "select dibs.enqueue('q', 'k')",
        "claim": "select dibs.claim('{q}')",
        "retry": """select dibs.retry('{"queue": "q"}')""",
        "pause": "select dibs.pause('q')",
        "prune": "select dibs.prune()",
        "depth": "select dibs.depth('q')",
        "why": f"select dibs.why('{made.id}')",
        "table": "select * from dibs.job",
        "jobs": "select * from dibs.jobs",
        "inside": "select dibs._end_runs('lost', '{}', '{}', now())",
        "hint": "insert into dibs.floor_hint values ('floor', 1, now(), '1 s', null)",
    }
    allowed = {
        "dibs_producer": {"enqueue", "why"},
        "dibs_worker": {"claim", "prune", "depth", "why"},
        "dibs_observer": {"depth", "why", "jobs"},
        "dibs_admin": {"enqueue", "claim", "retry", "pause", "prune", "depth", "why", "jobs"},
        "dibs_read": {"depth", "why", "jobs"},
        "dibs_pause": {"pause"},
        "dibs_retry": {"retry"},
        "nobody": set(),
    }
    for role, login in logins.items():
        with psycopg.connect(re.sub(r"user=\w+", f"user={login}", dsn), autocommit=True) as conn:
            for what, statement in tries.items():
                try:
                    conn.execute(statement)
                    worked = True
                except psycopg.errors.InsufficientPrivilege:
                    worked = False
                assert worked == (what in allowed.get(role, ())), f"{role} {what}"


def test_every_role_tries_every_function_and_every_table(
    dsn: str, logins: dict[str, str], db: psycopg.Connection[Any]
) -> None:
    """The whole matrix for real: what is not declared is refused, and what is declared is not."""
    db.execute("set search_path = pg_catalog")
    functions = db.execute(
        "select p.proname, format('select %s(%s)', p.oid::regproc, array_to_string(array("
        "  select format('(select null::%s)', format_type(t, null)) from unnest(p.proargtypes) as t), ', '))"
        " from pg_proc as p where p.pronamespace = 'dibs'::regnamespace and p.prorettype <> 'trigger'::regtype"
        " and p.provariadic = 0"
    ).fetchall()
    tables = db.execute(
        "select c.oid::regclass::text, c.relkind = 'v' from pg_class as c"
        " where c.relnamespace = 'dibs'::regnamespace and c.relkind in ('r', 'p', 'v') and not c.relispartition"
    ).fetchall()
    for role, login in logins.items():
        with psycopg.connect(re.sub(r"user=\w+", f"user={login}", dsn), autocommit=True) as conn:
            for name, call in functions:
                if role in FOUR or not name.startswith("_"):  # others differ in verbs alone
                    assert is_refused(conn, call) != (name in ALLOWED.get(role, ())), f"{role} {name}"
            for table, is_view in tables if role in FOUR else []:
                may_look = is_view and role in LOOKING
                assert is_refused(conn, f"select from {table} limit 0") != may_look, f"{role} {table}"
                for statement in (f"delete from {table}", f"insert into {table} default values", f"truncate {table}"):
                    if not is_view:
                        assert is_refused(conn, statement), f"{role} {statement}"


def is_refused(conn: psycopg.Connection[Any], statement: str) -> bool:
    """Whether a statement is refused because a right is missing, and not for another reason."""
    try:
        with conn.transaction(force_rollback=True):
            conn.execute(statement)
    except psycopg.errors.InsufficientPrivilege as error:
        return "permission denied for" in str(error)
    except psycopg.Error:
        return False
    return False


def test_a_worker_cannot_enqueue_through_follow_ups(dsn: str, logins: dict[str, str], client: dibs.Client) -> None:
    client.enqueue("q", "k")
    with dibs.Client(re.sub(r"user=\w+", f"user={logins['dibs_worker']}", dsn)) as worker:
        [job] = worker.claim("q")
        with pytest.raises(dibs.NotPermitted, match="follow-ups"):
            worker.complete(job, follow_ups=[dibs.NewJob(queue="q")])
        assert worker.complete(job) == "ok"
        with pytest.raises(dibs.NotPermitted):
            worker.enqueue("q", "k")
    assert client.queues.depth("q").waiting == 0


def test_a_temporary_table_captures_no_function(dsn: str, logins: dict[str, str], client: dibs.Client) -> None:
    """A definer function whose search_path does not end in pg_temp can be captured by a temporary table."""
    made = client.enqueue("q", "k")
    with psycopg.connect(re.sub(r"user=\w+", f"user={logins['dibs_admin']}", dsn), autocommit=True) as conn:
        names = [*HOT, "queue", "queues", "jobs", "worker", "setting", "floor_hint", "migration", "pg_proc", "pg_class"]
        for name in names:
            conn.execute(
                composed.SQL("create temporary table {} (id uuid, name text)").format(composed.Identifier(name))
            )
        conn.execute("create function pg_temp.now() returns timestamptz language sql return 'epoch'::timestamptz")
        conn.execute("create function pg_temp.lower(text) returns text language sql return 'captured'")
        conn.execute("set search_path = pg_temp, pg_catalog")
        for verb in sorted(ALLOWED["dibs_admin"]):
            arguments = conn.execute(
                "select array(select format_type(t, null) from unnest(proargtypes) as t)"
                " from pg_catalog.pg_proc where pronamespace = 'dibs'::regnamespace and proname = %s",
                (verb,),
            ).fetchone()
            assert arguments is not None
            nulls = ", ".join(f"null::{t}" for t in (arguments[0] or []))
            try:
                conn.execute(f"select dibs.{verb}({nulls})")
                state = "DI"
            except psycopg.DatabaseError as error:
                state = error.sqlstate or ""
            assert state.startswith(("DI", "23", "22")), f"{verb}: {state}"
        for name in names:
            count = conn.execute(
                composed.SQL("select count(*) from pg_temp.{}").format(composed.Identifier(name))
            ).fetchone()
            assert count == (0,)
        assert conn.execute("select count(*) from dibs.claim('{q}')").fetchone() == (1,)
    assert client.status(made.id).state is dibs.State.RUNNING


def test_definer_functions_pin_a_search_path_that_ends_in_pg_temp(db: psycopg.Connection[Any]) -> None:
    rows = db.execute(
        "select proname, prosecdef, coalesce(array_to_string(proconfig, ' '), '') from pg_proc"
        " where pronamespace = 'dibs'::regnamespace"
    ).fetchall()
    definers = {name: config for name, definer, config in rows if definer}
    assert {name for name, config in definers.items() if "search_path=pg_catalog, pg_temp" not in config} == set()
    public = set().union(*ALLOWED.values()) - {"now", "make_id", "id_time", *INVOKER}
    assert public <= definers.keys()


def test_every_function_table_and_view_has_a_comment(db: psycopg.Connection[Any]) -> None:
    assert db.execute(
        "select proname from pg_proc where pronamespace = 'dibs'::regnamespace"
        " and obj_description(oid, 'pg_proc') is null"
    ).fetchall() == []  # fmt: skip
    assert db.execute(
        "select relname from pg_class where relnamespace = 'dibs'::regnamespace and relkind in ('r', 'p', 'v')"
        " and not relispartition and relname <> 'test_clock' and obj_description(oid, 'pg_class') is null"
    ).fetchall() == []  # fmt: skip


def test_hot_tables_have_no_foreign_keys_and_settings_of_their_own(db: psycopg.Connection[Any]) -> None:
    assert (
        db.execute(
            "select conname from pg_constraint where contype = 'f' and connamespace = 'dibs'::regnamespace"
        ).fetchall()
        == []
    )
    rows = db.execute(
        "select relname, array_to_string(reloptions, ' ') from pg_class where relnamespace = 'dibs'::regnamespace"
        " and relname = any (%s)",
        (["ready", "blocked", "lease", "fingerprint", "dead"],),
    ).fetchall()
    assert len(rows) == 5
    for name, options in rows:
        assert "autovacuum_vacuum_cost_delay=0" in (options or ""), name


def test_every_object_is_named_after_its_table(db: psycopg.Connection[Any]) -> None:
    """Two tables that ask for one index name leave the second without any."""
    rows = db.execute(
        "select t.relname, i.relname from pg_index as x join pg_class as i on i.oid = x.indexrelid"
        " join pg_class as t on t.oid = x.indrelid where t.relnamespace = 'dibs'::regnamespace"
        " union all select t.relname, c.conname from pg_constraint as c join pg_class as t on t.oid = c.conrelid"
        " where t.relnamespace = 'dibs'::regnamespace and not t.relispartition"
    ).fetchall()
    assert [(table, name) for table, name in rows if not name.startswith(table)] == []
    for partition in ("job", "attempt"):
        counts = db.execute(
            "select count(distinct i.inhrelid), count(x.indexrelid) from pg_inherits as i"
            " left join pg_index as x on x.indrelid = i.inhrelid and x.indisprimary"
            " where i.inhparent = %s::regclass",
            (f"dibs.{partition}",),
        ).fetchone()
        assert counts
        assert counts[0] == counts[1] > 8


def test_the_functions_read_one_clock(db: psycopg.Connection[Any]) -> None:
    rows = db.execute(
        "select proname, coalesce(prosrc, '') || coalesce(pg_get_function_sqlbody(oid), '') from pg_proc"
        " where pronamespace = 'dibs'::regnamespace and prokind = 'f'"
    ).fetchall()
    for name, body in rows:
        plain = re.sub(r"dibs\.now\(\)", "", body)
        assert not re.search(
            r"(?<![\w.])now\(\)|current_timestamp|transaction_timestamp|localtimestamp", plain, re.IGNORECASE
        ), name
        if "clock_timestamp" in plain:
            assert name in THROTTLED, name


REMEMBERED = {
    20001: "first_blocked rank due_at id n since until;"
    " floor priorities due_us ids high_us sweep_at sweep_took near_at near_step reuse_until look_back;"
    " unit_hint n since until",
}
"""What sessions remember, by the seed of its checksum."""


def test_what_sessions_remember_has_a_seed_for_each_shape(db: psycopg.Connection[Any]) -> None:
    """After a migration, a session that was there before it must not read what it remembers in the old shape."""
    rows = db.execute(
        "select coalesce(prosrc, '') || coalesce(pg_get_function_sqlbody(oid), '') from pg_proc"
        " where pronamespace = 'dibs'::regnamespace and prokind = 'f'"
    ).fetchall()
    sources = "".join(body for (body,) in rows)
    sealing = db.execute("select pg_get_function_sqlbody('dibs._remember'::regproc)").fetchone()
    assert sealing
    seed = re.findall(r"\b\d{5}\b", sealing[0])[0]
    types = sorted(set(re.findall(r"_recall\([^)]*\)\)?::dibs\.(\w+)", sources)))
    shapes = db.execute(
        "select string_agg(t.name || ' ' || a.names, '; ' order by t.name) from unnest(%s::text[]) as t (name)"
        " cross join lateral (select string_agg(attname, ' ' order by attnum) as names from pg_attribute"
        " where attrelid = ('dibs.' || t.name)::regclass and attnum > 0) as a",
        (types,),
    ).fetchone()
    assert shapes == (REMEMBERED.get(int(seed)),), (
        "the shape has changed: give _remember and _recall another seed, and note it here"
    )


def test_no_function_with_an_exception_block_is_parallel_safe(db: psycopg.Connection[Any]) -> None:
    """Before version 17 PostgreSQL refuses subtransactions in a parallel query."""
    assert (
        db.execute(
            r"""select p.proname from pg_proc as p where p.pronamespace = 'dibs'::regnamespace and p.proparallel <> 'u'
        and (p.prosrc ~* '\mexception\s+when' or pg_get_functiondef(p.oid) ~ '_json_bytes(_or_huge)?\(')
        and p.prokind = 'f'"""
        ).fetchall()
        == []
    )


def test_what_disables_plans_is_not_compiled(db: psycopg.Connection[Any]) -> None:
    """A disabled plan counts as very expensive, so with JIT each call would be compiled for half a second."""
    assert db.execute(
        "select proname from pg_proc where pronamespace = 'dibs'::regnamespace"
        " and 'enable_seqscan=off' = any (proconfig) and 'jit=off' <> all (proconfig)"
    ).fetchall() == []  # fmt: skip


def test_no_function_waits_in_the_server(db: psycopg.Connection[Any]) -> None:
    """A function that loops with pg_sleep pins the horizon."""
    assert db.execute(
        "select proname from pg_proc where pronamespace = 'dibs'::regnamespace and prosrc ~ 'pg_sleep'"
    ).fetchall() == []  # fmt: skip


def test_only_partitions_grants_and_allowed_functions_are_built_from_text() -> None:
    built = {path for path, text in sql.modules() if re.search(r"\bexecute (format|\()", text.lower())}
    assert built == {
        "functions/history/_days", "functions/db_functions/run_function", "plans", "grants",
    }  # fmt: skip


def test_states_outcomes_and_errors_agree(db: psycopg.Connection[Any]) -> None:
    row = db.execute("select enum_range(null::dibs.outcome)::text[]").fetchone()
    assert row == ([str(o) for o in Outcome],)
    row = db.execute(
        "select pg_get_constraintdef(oid) from pg_constraint where conname = 'dead_state_known'"
    ).fetchone()
    assert row
    assert set(re.findall(r"'(\w+)'", row[0])) == set(map(str, DEAD))
    body = db.execute("select pg_get_function_sqlbody('dibs._state'::regproc)").fetchone()
    assert body
    told = set(re.findall(r"'(\w+)'::text", body[0]))
    assert told | set(map(str, DEAD)) == set(map(str, State))
    raised = set(re.findall(r"'(DI\d{3})'", sql.code()))
    assert raised == {code for code in errors.BY_SQLSTATE if code.startswith("DI")}


def test_unique_violations_print_a_hash_not_the_key(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    """A unique violation prints the key that is stored, so only a hash is."""
    client.enqueue("q", "k", dedup_key="user@example.org")
    with pytest.raises(psycopg.errors.UniqueViolation) as raised:
        db.execute("insert into dibs.fingerprint select * from dibs.fingerprint")
    assert "user@example.org" not in str(raised.value)


def test_one_list_of_job_options(db: psycopg.Connection[Any]) -> None:
    """What a batch may say of a job and what enqueue takes as arguments are the same names."""
    row = db.execute(
        "select dibs._field_names('dibs.job_request'), proargnames from pg_proc where oid = 'dibs.enqueue'::regproc"
    ).fetchone()
    assert row
    assert set(row[0]) == set(row[1]) - {"fresh"}


def test_every_setting_of_a_queue_can_be_set_and_seen(db: psycopg.Connection[Any]) -> None:
    backoff = {"kind": "constant", "delays": ["00:00:07"], "factor": None, "cap": None, "jitter": None}
    settings = {
        "priority": 7, "lease": "00:00:20", "lease_growth": 2, "lease_cap": "01:00:00", "max_attempts": 9,
        "max_losses": 8, "backoff": backoff, "ttl": None, "payload_limit": 1000, "history": "none",
        "retention": "3 days", "history_retention": "2 days", "ring": False, "shards": 2, "shard_lease": "00:01:00",
        "max_depth": 10, "max_age": "00:02:00", "when_full": "sideline", "newest_first": True, "noisy_share": 0.25,
    }  # fmt: skip
    assert db.execute("select dibs._field_names('dibs.queue_policy')").fetchone() == (list(settings),)
    for name, value in settings.items():
        db.execute("select dibs.set_queue('q', %s::jsonb)", (json.dumps({name: value}),))
    row = db.execute("select to_jsonb(q) from dibs.queues as q").fetchone()
    assert row
    assert {name: row[0][name] for name in settings} == settings
