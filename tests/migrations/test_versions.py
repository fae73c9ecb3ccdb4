"""Releases side by side: a client works with the schema before its own, and with later ones that serve it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import dibs
from dibs import sql

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

LATEST = sql.latest_version()

EXPAND = {
    # A column, and a verb with one more argument: those who do not know it still find the verb.
    f"migrations/{LATEST + 1:04}_expand.sql": (
        "alter table dibs.queue add column note text;\ndrop function dibs.pause(text);\n"
    ),
    "functions/queues/pause.sql": (sql.ROOT / "functions/queues/pause.sql")
    .read_text()
    .replace("dibs.pause(queue text)", "dibs.pause(queue text, note text default null)")
    .replace("set paused_at = dibs.now()", "set paused_at = dibs.now(), note = pause.note"),
}
CONTRACT = {f"migrations/{LATEST + 2:04}_contract.sql": "select 1;\n"}

USE = """
import contextlib, json, sys
import dibs
from dibs.db.schema import migrate
dsn = sys.argv[1]
def use():
    ran = []
    with contextlib.closing(dibs.App(dsn)) as app:
        @app.task(queue="mail")
        async def welcome(n: int) -> int:
            ran.append(n)
            return n
        with dibs.Client(dsn) as client:
            client.enqueue("plain", "k", {"n": 1})
            client.complete(client.claim("plain")[0])
            client.queues.pause("plain")
            client.queues.resume("plain")
        for n in range(3):
            welcome.enqueue(n)
        app.run_worker(drain=True)
    return sorted(ran)
for line in sys.stdin:
    try:
        told = migrate(dsn).after if line == "migrate\\n" else use()
    except dibs.DibsError as error:
        told = type(error).__name__
    print(json.dumps(told), flush=True)
"""


def release(folder: Path, changes: dict[str, str], oldest_client: int) -> Path:
    """A release of dibs like this one, with other SQL files; where to import it from."""
    package = folder / "dibs"
    shutil.copytree(Path(dibs.__file__).parent, package)
    for name, text in changes.items():
        (package / "sql" / name).parent.mkdir(exist_ok=True)
        (package / "sql" / name).write_text(text)
    code = package / "sql" / "__init__.py"
    before = f"OLDEST_CLIENT = {sql.OLDEST_CLIENT}\n"
    assert before in code.read_text()
    code.write_text(code.read_text().replace(before, f"OLDEST_CLIENT = {oldest_client}\n"))
    return folder


class Running:
    """A process of a release, which says what it is asked."""

    def __init__(self, release: Path, dsn: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", USE, dsn], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(release)},
        )  # fmt: skip

    def __call__(self, what: str = "use") -> Any:
        assert self._process.stdin
        assert self._process.stdout
        print(what, file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        self._process.communicate(timeout=20)
        assert self._process.returncode == 0


@pytest.fixture
def start(tmp_path: Path, empty_dsn: str) -> Iterator[Callable[..., Running]]:
    """Starts a process of a release with such changes; all end with the test."""
    with ExitStack() as stack:

        def start(name: str, changes: dict[str, str], oldest_client: int) -> Running:
            running = Running(release(tmp_path / name, changes, oldest_client), empty_dsn)
            stack.callback(running.end)
            return running

        yield start


def test_releases_side_by_side(start: Callable[..., Running]) -> None:
    """This release, the next, which expands, and the one after that, which contracts."""
    now = start("now", {}, sql.OLDEST_CLIENT)
    later = start("later", EXPAND, LATEST)
    last = start("last", EXPAND | CONTRACT, LATEST + 1)
    assert now("migrate") == LATEST
    assert later() == [0, 1, 2], "new code before its migration"
    assert last() == "SchemaTooOld", "two versions ahead"

    assert later("migrate") == LATEST + 1
    for use in (now, later, last):
        assert use() == [0, 1, 2], "all of them, after the first migration"

    assert last("migrate") == LATEST + 2
    assert later() == [0, 1, 2]
    assert now() == "SchemaTooNew", "two versions behind"


def test_a_client_reads_a_function_of_a_later_schema_with_another_column(
    client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    client.enqueue("q", "k")
    db.execute("alter function dibs.depth(text) rename to depth_before")
    [(table,)] = db.execute("select pg_get_function_result('dibs.depth_before(text)'::regprocedure)").fetchall()
    db.execute(
        f"create function dibs.depth(queue text default null) returns {table[:-1]}, later integer)"
        " language sql begin atomic select d.*, 7 from dibs.depth_before(queue) as d; end"
    )
    assert client.queues.depth("q").ready == 1
    assert [depth.ready for depth in client.queues.depths()] == [1]
