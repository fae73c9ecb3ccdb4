"""The README's hello world, typed as is: it runs, it type-checks, and wrong arguments are refused twice."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import dibs
from tests.docs.pages import ROOT, blocks

if TYPE_CHECKING:
    from pathlib import Path

WRONG = {
    'welcome.enqueue("42")': (
        'Argument 1 to "enqueue" of "Task" has incompatible type "str"; expected "int"',
        "Expected `int`, got `str` - at `$.user_id`",
    ),
    "welcome.enqueue()": (
        'Missing positional argument "user_id" in call to "enqueue" of "Task"',
        "missing a required argument: 'user_id'",
    ),
    'welcome.enqueue(42, language="de")': (
        'Unexpected keyword argument "language" for "enqueue" of "Task"',
        "unexpected keyword argument 'language'",
    ),
    "welcome.call(42, 7)": (
        'Argument 2 to "call" of "Task" has incompatible type "int"; expected "str"',
        "Expected `str`, got `int` - at `$.lang`",
    ),
    "welcome.using(prioritty=9).enqueue(42)": (
        'Unexpected keyword argument "prioritty" for "using" of "Task"',
        "a task has no option 'prioritty'",
    ),
}
"""A wrong line, what mypy says of it, and what it raises."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which somebody typed what the README shows."""
    (hello,) = [block for block in blocks(ROOT / "README.md") if block.file == "hello.py"]
    (tmp_path / "hello.py").write_text(hello.text, encoding="utf-8")
    return tmp_path


def run(folder: Path, dsn: str, *command: str) -> str:
    environment = {**os.environ, "DIBS_DSN": dsn}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_runs(folder: Path, dsn: str, client: dibs.Client) -> None:
    """A script calls itself ``__main__``, and the worker knows it as ``hello``: they must mean the same task."""
    assert run(folder, dsn, "hello.py").endswith("ready\n")
    run(folder, dsn, "-m", "hello")
    assert "2 jobs ended" in run(folder, dsn, "-m", "dibs", "worker", "hello:app", "--drain")
    first, second = client.find_jobs({"queue": "mail"}).jobs
    assert {first.state, second.state} == {"succeeded"}
    shown = client.show(first.id) or {}
    assert shown["attempts"][0]["result"] == "welcomed 42 in de"


def test_what_the_quickstart_looks_at_is_there_at_once(folder: Path, dsn: str) -> None:
    """The job with its attempt, and today's count: a worker that leaves brings the statistics up to date."""
    page = blocks(ROOT / "docs/start/quickstart.md")
    (hello,) = [block for block in page if block.file == "hello.py"]
    (folder / "hello.py").write_text(hello.text, encoding="utf-8")
    commands = [line.removeprefix("$ ") for b in page if b.language == "console" for line in b.text.splitlines()]
    made, *_ = run(folder, dsn, *commands[commands.index("python hello.py")].split()[1:]).split()
    run(folder, dsn, "-m", *commands[commands.index("dibs worker hello:app --drain")].split())
    assert {"dibs jobs", "dibs queues"} < set(commands)
    listed = run(folder, dsn, "-m", "dibs", "jobs").splitlines()
    assert dict(zip(listed[0].split(), listed[1].split(), strict=False))["attempts"] == "1/5"
    assert listed[1].split()[:4] == [made, "mail", "hello.welcome", "succeeded"]
    queues = run(folder, dsn, "-m", "dibs", "queues").splitlines()
    assert (queues[0].split()[-1], queues[1].split()[-1]) == ("today", "1")


@pytest.mark.once
def test_it_type_checks_and_wrong_arguments_do_not(folder: Path) -> None:
    lines = ["from hello import welcome", *WRONG]
    (folder / "wrong.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    # With our own configuration, which is strict, and so with the cache of `make check`.
    command = [sys.executable, "-m", "mypy", str(folder / "hello.py"), str(folder / "wrong.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    said = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(said) == len(WRONG), done.stdout + done.stderr
    for number, ((by_mypy, _), line) in enumerate(zip(WRONG.values(), said, strict=True), start=2):
        assert f"wrong.py:{number}: error: {by_mypy}" in line


@pytest.mark.parametrize("line", WRONG)
def test_wrong_arguments_raise(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, object] = {"__name__": "hello"}
    exec((folder / "hello.py").read_text(encoding="utf-8"), names)
    with pytest.raises(dibs.InvalidArgument) as raised:
        exec(line, names)
    assert WRONG[line][1] in str(raised.value)
    assert raised.value.hint
