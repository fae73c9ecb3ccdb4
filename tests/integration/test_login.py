"""A server that refuses us is not asked again: a missing database, an unknown role, a wrong password."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import dibs
from dibs.db.admin import at_database, execute, fetch
from tests.servers import copied

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def guarded(new_folder: Path) -> Iterator[str]:
    """The DSN of a role that needs a password, on a separate server; without the password."""
    with copied(new_folder) as server:
        hba = Path(fetch(server.dsn(), "show hba_file"))
        execute(server.dsn(), "create role guarded login password 'right'")
        hba.write_text("local all guarded scram-sha-256\n" + hba.read_text())
        execute(server.dsn(), "select pg_reload_conf()")
        yield server.dsn().replace("user=dibs", "user=guarded")


def refused(dsn: str) -> dibs.errors.LoginRefused:
    began = time.monotonic()
    with pytest.raises(dibs.errors.LoginRefused) as caught, dibs.Client(dsn, patience=60):
        pass
    assert time.monotonic() - began < 20
    assert caught.value.hint
    return caught.value


def test_a_missing_database_and_an_unknown_role_are_told_at_once(dsn: str) -> None:
    missing = refused(at_database(dsn, "nowhere"))
    assert (missing.sqlstate, "nowhere" in missing.message) == ("3D000", True)
    unknown = refused(dsn.replace("user=dibs", "user=nobody_here"))
    assert (unknown.sqlstate, "nobody_here" in unknown.message) == ("28000", True)


def test_a_wrong_password_is_told_at_once_and_never_printed(guarded: str) -> None:
    wrong = refused(f"{guarded}&password=hush")
    assert wrong.sqlstate == "28P01"
    assert "hush" not in str(wrong)
    with pytest.raises(dibs.errors.SchemaMissing), dibs.Client(f"{guarded}&password=right"):
        pass


async def test_an_async_client_is_told_at_once(dsn: str) -> None:
    with pytest.raises(dibs.errors.LoginRefused):
        async with dibs.AsyncClient(at_database(dsn, "nowhere"), patience=60):
            pass


@pytest.mark.parametrize("command", [["queues"], ["worker", "--channels"], ["maintain"]])
def test_commands_say_so_and_exit(dsn: str, command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dibs", *command, "--dsn", at_database(dsn, "nowhere")],
        capture_output=True, text=True, timeout=30, check=False, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert 'database "nowhere" does not exist' in done.stderr
    assert "Traceback" not in done.stderr
