"""Releases side by side: a client works with the schema before its own, and with later ones that serve it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dibs
from dibs import sql

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
import asyncio, json, sys
import dibs
from dibs.db.schema import migrate
dsn, what = sys.argv[1:]
if what == "migrate":
    print(json.dumps(migrate(dsn).after))
    sys.exit()
app = dibs.App(dsn)
ran = []
@app.task(queue="mail")
async def welcome(n: int) -> int:
    ran.append(n)
    return n
try:
    with dibs.Client(dsn) as client:
        client.enqueue("plain", "k", {"n": 1})
        client.complete(client.claim("plain")[0])
        client.pause("plain")
        client.resume("plain")
    for n in range(3):
        welcome.enqueue(n)
    app.run_worker(drain=True)
    print(json.dumps(sorted(ran)))
except dibs.DibsError as error:
    print(json.dumps(type(error).__name__))
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


def use(release: Path, dsn: str, what: str = "use") -> Any:
    """What a process of that release says."""
    done = subprocess.run(
        [sys.executable, "-c", USE, dsn, what], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(release)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def now(tmp_path: Path) -> Path:
    """This release."""
    return release(tmp_path / "now", {}, sql.OLDEST_CLIENT)


@pytest.fixture
def later(tmp_path: Path) -> Path:
    """The next release, which expands."""
    return release(tmp_path / "later", EXPAND, LATEST)


@pytest.fixture
def last(tmp_path: Path) -> Path:
    """The one after that, which contracts."""
    return release(tmp_path / "last", EXPAND | CONTRACT, LATEST + 1)


def test_releases_side_by_side(now: Path, later: Path, last: Path, empty_dsn: str) -> None:
    assert use(now, empty_dsn, "migrate") == LATEST
    assert use(later, empty_dsn) == [0, 1, 2], "new code before its migration"
    assert use(last, empty_dsn) == "SchemaTooOld", "two versions ahead"

    assert use(later, empty_dsn, "migrate") == LATEST + 1
    for package in (now, later, last):
        assert use(package, empty_dsn) == [0, 1, 2], "all of them, after the first migration"

    assert use(last, empty_dsn, "migrate") == LATEST + 2
    assert use(later, empty_dsn) == [0, 1, 2]
    assert use(now, empty_dsn) == "SchemaTooNew", "two versions behind"
