"""Migrations: safe to run twice and by two at once, and the migrated database equals the fresh one."""

from __future__ import annotations

import asyncio
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import dibs
from dibs import sql
from dibs.client.bounded import ActingClient
from dibs.db import schema
from dibs.db.admin import create_database, execute
from dibs.db.grants import check
from dibs.db.schema import migrate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dibs.db.schema import Migrated
    from dibs.embedded import Server
    from tests.servers import Databases


@pytest.fixture
def two_dsns(databases: Databases, empty_dsn: str) -> Iterator[tuple[str, str]]:
    """Two databases without dibs."""
    with databases.copy() as dsn:
        yield empty_dsn, dsn


def dump(server: Server, dsn: str) -> list[str]:
    """The schema as pg_dump writes it, without what differs between any two databases."""
    program = server.binaries["pg_dump"]
    text = subprocess.run(
        [program, "--schema-only", "--schema=dibs", dsn], capture_output=True, text=True, check=True
    ).stdout
    lines = (re.sub(r"\\(un)?restrict \w+", "", line) for line in text.splitlines())
    return [line for line in lines if line.strip() and not line.startswith("--")]


def test_a_fresh_install_says_what_it_did_and_twice_is_nothing(empty_dsn: str) -> None:
    first = migrate(empty_dsn)
    assert (first.before, first.after) == (None, sql.latest_version())
    assert len(first.applied) == len(sql.migrations())
    assert first.changed
    second = migrate(empty_dsn)
    assert not second.changed
    with dibs.Client(empty_dsn) as client:
        client.enqueue("q", "k")
        client.complete(client.claim("q")[0])


@pytest.mark.parametrize("start", [version for version, _, _ in sql.migrations()])
def test_from_every_version_the_migrated_database_equals_the_fresh_one(
    server: Server, two_dsns: tuple[str, str], start: int
) -> None:
    fresh, old = two_dsns
    migrate(fresh)
    execute(old, sql.install_script(upto=start))
    migrated = migrate(old)
    assert migrated.before == start
    assert len(migrated.applied) == sum(version > start for version, _, _ in sql.migrations())
    assert dump(server, old) == dump(server, fresh)


def test_psql_installs_the_same(server: Server, two_dsns: tuple[str, str]) -> None:
    by_python, by_psql = two_dsns
    migrate(by_python)
    for _ in range(2):
        done = subprocess.run(
            [server.binaries["psql"], "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", "-", by_psql],
            input=sql.install_script(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert dump(server, by_psql) == dump(server, by_python)
    with psycopg.connect(by_psql, autocommit=True) as conn:
        conn.execute("select dibs.enqueue('mail', 'welcome', '{\"user\": 1}')")
        [(id, token)] = conn.execute("select id, token from dibs.claim('{mail}')").fetchall()
        assert conn.execute("select dibs.complete(%s, %s)", (id, token)).fetchone() == ("ok",)


def test_two_processes_at_once(empty_dsn: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        done: list[Migrated] = list(pool.map(lambda _: migrate(empty_dsn), range(4)))
    assert any(m.before is None and m.changed for m in done)
    assert not migrate(empty_dsn).changed


def test_a_migration_gives_up_when_another_does_not_end(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn) as other:
        other.execute("create schema dibs")
        who = rf"pid {other.info.backend_pid} .*create schema"
        with pytest.raises(dibs.errors.SchemaLocked, match=rf"{who}[\s\S]*nothing was changed"):
            migrate(empty_dsn, lock_timeout=0.1)
        other.rollback()
    assert migrate(empty_dsn).before is None


def test_many_databases_of_a_new_server_at_once(new_server: Server) -> None:
    """Roles belong to the whole server: all but one of the installs find them being made."""
    names = [f"shop{n}" for n in range(4)]
    for name in names:
        create_database(new_server.dsn("postgres"), name)
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda name: migrate(new_server.dsn(name)), names))
    assert [m.notices for m in done] == [()] * 4


def test_a_migration_behind_an_open_transaction_stalls_nobody(
    installed_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anyone who needs a table waits behind a migration that waits for it: so that waits for a moment only."""
    later = [*sql.migrations(), (2, "more", "alter table dibs.job add column more integer")]
    monkeypatch.setattr(sql, "migrations", lambda: later)
    monkeypatch.setattr(schema, "PAUSE", 0.05)
    told: list[str] = []
    with psycopg.connect(installed_dsn, autocommit=True) as producer, psycopg.connect(installed_dsn) as reader:
        producer.execute("set statement_timeout = '3s'")
        producer.execute("select dibs.enqueue('q', 'k')")
        reader.execute("select from dibs.claim('{q}')")
        with ThreadPoolExecutor(1) as pool:
            migrating = pool.submit(migrate, installed_dsn, lock_timeout=60, waiting=told.append)
            while len(told) < 3 and not migrating.done():
                producer.execute("select dibs.enqueue('q', 'k')")
            reader.rollback()
            assert migrating.result(30).applied == ("0002 more",)
            assert all(f"pid {reader.info.backend_pid}" in line and "dibs.claim" in line for line in told)


def test_a_dry_run_changes_nothing(empty_dsn: str) -> None:
    would = migrate(empty_dsn, dry_run=True)
    assert len(would.applied) == len(sql.migrations())
    assert migrate(empty_dsn).before is None


def test_a_client_says_when_the_schema_does_not_fit(empty_dsn: str) -> None:
    with pytest.raises(dibs.errors.SchemaMissing, match="dibs migrate"), dibs.Client(empty_dsn):
        pass
    migrate(empty_dsn)
    latest = sql.latest_version()
    execute(empty_dsn, "update dibs.migration set version = 900 where version = %s", (latest,))
    execute(empty_dsn, "update dibs.code set oldest_client = 899")
    with (
        pytest.raises(dibs.errors.SchemaTooNew, match="serves clients of version 899 and later"),
        dibs.Client(empty_dsn),
    ):
        pass
    with pytest.raises(dibs.errors.SchemaTooNew):
        migrate(empty_dsn)
    execute(empty_dsn, "delete from dibs.migration where version = 900")
    with pytest.raises(dibs.errors.SchemaTooOld, match="dibs migrate"), dibs.Client(empty_dsn):
        pass


def test_changed_functions_are_applied_again(installed_dsn: str) -> None:
    execute(installed_dsn, "update dibs.code set digest = 'of an older release'")
    execute(
        installed_dsn,
        "create or replace function dibs._state(id uuid) returns text language sql return 'stale'",
    )
    execute(installed_dsn, "grant execute on function dibs._state to public")
    again = migrate(installed_dsn)
    assert (again.applied, again.code_changed) == ((), True)
    with psycopg.connect(installed_dsn) as conn:
        row = conn.execute(
            "select dibs._state(gen_random_uuid()), has_function_privilege('public', 'dibs._state(uuid)', 'execute')"
        ).fetchone()
    assert row == ("unknown", False)


TRAP = """
create schema dibs;
create table dibs.migration (version integer not null constraint migration_pkey primary key, name text not null,
  applied_at timestamptz not null default clock_timestamp());
create function dibs.climb() returns void language plpgsql as $$ begin
  if (select rolsuper from pg_roles where rolname = current_user) then alter role mallory superuser; end if; end $$;
create function dibs.trap() returns trigger language plpgsql as $$ begin perform dibs.climb(); return new; end $$;
create trigger t before insert on dibs.migration for each row execute function dibs.trap();
"""

VERSION_TRAP = """
create function dibs.version(out version integer, out code text) language plpgsql as $$ begin
  perform dibs.climb(); version := 0; end $$;
"""


@pytest.fixture
def mallory(server: Server, admin_dsn: str, empty_dsn: str) -> Iterator[str]:
    """A login that may create a schema, and nothing else."""
    execute(admin_dsn, "create role mallory login")
    execute(
        empty_dsn, "do $$ begin execute format('grant create on database %I to mallory', current_database()); end $$"
    )
    yield as_user(empty_dsn, "mallory")
    execute(empty_dsn, "drop owned by mallory cascade")
    execute(admin_dsn, "drop role mallory")


@pytest.mark.parametrize("trap", ["create schema dibs", TRAP, TRAP + VERSION_TRAP])
def test_an_install_into_a_schema_of_somebody_else_is_refused(
    server: Server, empty_dsn: str, mallory: str, trap: str
) -> None:
    """What somebody else left there would run with the rights of the one who installs."""
    execute(mallory, trap)
    with pytest.raises(dibs.NotPermitted, match="the schema dibs belongs to mallory") as refused:
        migrate(empty_dsn)
    assert refused.value.hint is not None
    assert "install as mallory" in refused.value.hint
    with pytest.raises(dibs.NotPermitted):
        migrate(empty_dsn, dry_run=True)
    by_psql = subprocess.run(
        [server.binaries["psql"], "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", "-", empty_dsn],
        input=sql.install_script(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "belongs to mallory" in by_psql.stderr
    with psycopg.connect(empty_dsn) as conn:
        assert conn.execute("select rolsuper from pg_roles where rolname = 'mallory'").fetchone() == (False,)


@pytest.mark.parametrize(
    "thing",
    [
        "alter table dibs.setting owner to mallory",
        "alter view dibs.jobs owner to mallory",
        "alter function dibs.now() owner to mallory",
        "alter type dibs.claimed owner to mallory",
        "alter schema dibs owner to mallory",
    ],
)
def test_nothing_in_the_schema_may_belong_to_somebody_else(mallory: str, installed_dsn: str, thing: str) -> None:
    execute(installed_dsn, "grant create on schema dibs to mallory")
    execute(installed_dsn, thing)
    execute(installed_dsn, "revoke create on schema dibs from mallory")
    with pytest.raises(dibs.NotPermitted, match="belongs to mallory"):
        migrate(installed_dsn)
    assert any("belongs to somebody beside its owner" in what for what, _ in check(installed_dsn))


def as_user(dsn: str, user: str) -> str:
    return re.sub(r"user=\w+", f"user={user}", dsn)


async def has_no_roles(dsn: str) -> None:
    with pytest.raises(dibs.errors.SchemaMissing, match="lacks the role dibs_read"):
        async with ActingClient(dsn, timeout=5, write=False):
            pass


async def acts(dsn: str) -> None:
    async with ActingClient(dsn, timeout=5, write=False) as acting:
        assert await acting.queues.list() == []


def test_without_the_right_to_make_roles_everything_else_is_installed(new_server: Server) -> None:
    execute(new_server.dsn("postgres"), "create role plain login")
    execute(new_server.dsn("postgres"), "create database plain owner plain")
    done = migrate(as_user(new_server.dsn("plain"), "plain"))
    assert [re.findall(r"role (\w+) was not made", n) for n in done.notices] == [
        [role] for role in sql.ROLES
    ]  # fmt: skip
    with dibs.Client(as_user(new_server.dsn("plain"), "plain")) as client:
        client.enqueue("q", "k")
        assert client.complete(client.claim("q")[0]) == "ok"
        asyncio.run(has_no_roles(client.dsn))
    execute(new_server.dsn("plain"), "update dibs.code set digest = 'of an older release'")
    with psycopg.connect(new_server.dsn("plain")) as reader:
        reader.execute("select from dibs.jobs")
        with pytest.raises(
            dibs.errors.SchemaLocked, match=rf"pid {reader.info.backend_pid} \(\w+\): <insufficient priv"
        ):
            migrate(as_user(new_server.dsn("plain"), "plain"), lock_timeout=0.1)
        again = migrate(as_user(new_server.dsn("plain"), "plain"), waiting=lambda _: reader.rollback())
    assert again.notices == done.notices, "each once, though the first try was in vain"
    execute(new_server.dsn("postgres"), "create role maker login createrole")
    execute(new_server.dsn("postgres"), "create database made owner maker")
    assert migrate(as_user(new_server.dsn("made"), "maker")).notices == ()
    for login in ("maker", "dibs"):
        asyncio.run(acts(as_user(new_server.dsn("made"), login)))
    with psycopg.connect(new_server.dsn("made")) as conn:
        row: Any = conn.execute("select count(*) from pg_roles where rolname like 'dibs\\_%'").fetchone()
    assert row == (len(sql.ROLES),)
