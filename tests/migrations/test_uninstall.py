"""Uninstalling: drops what is ours, says what goes with it, and refuses while it is in use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import dibs
from dibs import sql
from dibs.db.admin import execute, fetch
from dibs.db.schema import migrate
from dibs.db.uninstall import uninstall

if TYPE_CHECKING:
    import psycopg

    from dibs.embedded import Server


def run(dsn: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dibs", "uninstall", *args], capture_output=True, text=True, check=False,
        env={**os.environ, "DIBS_DSN": dsn},
    )  # fmt: skip


def test_everything_goes_and_the_roles_when_nobody_needs_them(new_server: Server) -> None:
    first, second = new_server.dsn("first"), new_server.dsn("second")
    for dsn in (first, second):
        execute(new_server.dsn("postgres"), f"create database {dsn.split('/')[3].split('?')[0]}")
        migrate(dsn)
    with dibs.Client(first) as client:
        client.enqueue("q", "k")
    would = run(first)
    assert "would drop the schema dibs with 1 jobs" in would.stdout
    assert "--yes" in would.stdout
    assert fetch(first, "select count(*) from dibs.job") == 1

    done = json.loads(run(first, "--roles", "--yes", "--json").stdout)
    assert (done["jobs"], done["roles"]) == (1, [])
    assert done["roles_kept"] == list(sql.ROLES), "the second has them"
    assert fetch(first, "select to_regnamespace('dibs')") is None
    assert uninstall(second, roles=True).roles_kept == ()
    assert fetch(first, "select count(*) from pg_roles where rolname like 'dibs\\_%'") == 0
    again = run(first, "--yes")
    assert again.returncode != 0
    migrate(second)
    execute(second, "drop owned by dibs_observer")
    execute(second, "drop role dibs_observer")
    assert uninstall(second, roles=True).roles == tuple(role for role in sql.ROLES if role != "dibs_observer")
    assert "not installed" in again.stderr
    assert migrate(first).before is None


def test_it_refuses_while_workers_run(dsn: str, db: psycopg.Connection[Any]) -> None:
    db.execute("select dibs.register_worker('alice')")
    with pytest.raises(dibs.errors.SchemaInUse, match="workers are running: alice"):
        uninstall(dsn)
    assert uninstall(dsn, dry_run=True).workers == ("alice",)
    uninstall(dsn, force=True)
    assert fetch(dsn, "select to_regnamespace('dibs')") is None


def test_it_refuses_to_drop_what_is_not_ours(dsn: str, db: psycopg.Connection[Any]) -> None:
    db.execute("create view public.mine as select * from dibs.queues")
    db.execute("create table public.copied (job dibs.claimed)")
    db.execute("create function public.of_mine(job dibs.claimed) returns integer language sql return 1")
    with pytest.raises(dibs.errors.SchemaInUse, match="would be dropped, too") as refused:
        uninstall(dsn)
    for name in ("view public.mine", "column job of table public.copied", "function public.of_mine(dibs.claimed)"):
        assert name in refused.value.message
    assert fetch(dsn, "select count(*) from public.mine") == 0
    uninstall(dsn, force=True)
    assert fetch(dsn, "select to_regclass('public.mine')") is None
    assert fetch(dsn, "select to_regclass('public.copied')") is not None


def test_only_who_owns_it_may(dsn: str, admin_dsn: str) -> None:
    execute(admin_dsn, "create role passer_by login")
    try:
        with pytest.raises(dibs.DibsError):
            uninstall(dsn.replace("user=", "user=passer_by&was="))
    finally:
        execute(admin_dsn, "drop role passer_by")
    assert fetch(dsn, "select to_regnamespace('dibs')") == "dibs"
