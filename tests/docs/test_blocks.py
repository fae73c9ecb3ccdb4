"""Every block of code in the docs runs: a page is one story, told to one database."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from click.testing import CliRunner

from dibs.cli.app import dibs as cli
from dibs.embedded import Server
from dibs.embedded.temporary import guarded_folder
from tests.docs.pages import NOT_RUN, PAGES, ROOT, RUN, Block, blocks, name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WITH_CODE = [page for page in PAGES if any(block.language in RUN for block in blocks(page))]
ENDLESS = {"demo", "embedded", "maintain", "worker"}
"""Commands that go on until they are stopped, or start something that does: tested elsewhere."""
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def placed(block: Block) -> str:
    """Its text with so many empty lines above that errors name the lines of the page."""
    return "\n" * block.line + block.text


def run_command(line: str, empty_dsn: Callable[[], str], server: Server) -> None:
    """Run a command of ours; of others, only look whether what they name exists."""
    words = shlex.split(line, comments=True)
    if words[0] == "make":
        assert set(words[1:]) <= TARGETS, f"the Makefile has no {words[1:]}"
    if words[0] == "python" and words[1:2] != ["-m"]:
        subprocess.run([sys.executable, *words[1:]], check=True, capture_output=True, timeout=60)
    ends = {"maintain" if "--once" in words else "", "worker" if "--drain" in words else ""}
    if words[0] != "dibs" or ENDLESS & set(words) - ends:
        return
    if "psql" in words:
        script = dibs_command("sql")
        psql = [str(server.binaries["psql"]), "-q", "-v", "ON_ERROR_STOP=1", empty_dsn()]
        subprocess.run(psql, input=script, text=True, check=True, capture_output=True)
    elif re.search(r"[<>|…]", line):
        dibs_command(words[1], "--help")
    else:
        dibs_command(*words[1:])


def dibs_command(*args: str) -> str:
    """Run a command in this process, which saves starting another; a worker, which imports an app, needs its own."""
    if args[0] == "worker" and "--help" not in args:
        done = subprocess.run(
            [sys.executable, "-m", "dibs", *args], capture_output=True, text=True, timeout=60, check=False
        )
        code, said = done.returncode, done.stdout + done.stderr
    else:
        result = CliRunner().invoke(cli, args)
        code, said = result.exit_code, result.output
    assert code == 0, f"dibs {' '.join(args)}: {said}"
    return said


@pytest.fixture
def embedded_elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A place of the test's own for the embedded server, which ends with it."""
    with guarded_folder() as folder:
        monkeypatch.setenv("DIBS_DATA_DIR", str(folder / "shared"))
        yield
        Server().stop("immediate")


@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_blocks_run(
    page: Path, dsn: str, server: Server, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIBS_DSN", dsn)
    monkeypatch.chdir(request.getfixturevalue("tmp_path"))
    if page.name == "embedded.md":
        request.getfixturevalue("embedded_elsewhere")
    names: dict[str, Any] = {"__name__": "__main__"}
    with psycopg.connect(dsn, autocommit=True) as conn:
        for block in blocks(page):
            if block.file is not None:
                Path(block.file).parent.mkdir(parents=True, exist_ok=True)
                Path(block.file).write_text(block.text, encoding="utf-8")
            elif block.language == "python":
                exec(compile(placed(block), name(page), "exec"), names)
            elif block.language == "sql":
                conn.execute(placed(block))
            elif block.language == "console":
                for line in re.findall(r"^\$ (.*)$", block.text, re.MULTILINE):
                    run_command(line, lambda: request.getfixturevalue("empty_dsn"), server)


@pytest.mark.once
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_blocks_say_what_they_are(page: Path) -> None:
    strange = {block.language for block in blocks(page)} - RUN - NOT_RUN
    assert not strange, f"a block is python, sql or console and run, or text and not: {strange}"


def test_there_are_blocks() -> None:
    assert {"README.md", "docs/start/quickstart.md", "docs/use/sql.md"} <= {name(page) for page in WITH_CODE}
