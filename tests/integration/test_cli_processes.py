"""The commands as people run them: real processes, pipes, signals, and a server that is restarted under them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import dibs
from dibs.cli.app import dibs as app
from dibs.embedded import Server
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

DIBS = [sys.executable, "-m", "dibs"]


def run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*DIBS, *args], env=os.environ | env, capture_output=True, text=True, timeout=60, check=False)


def test_the_demo_needs_no_database_and_leaves_nothing(home: Path) -> None:
    home.chmod(0o1777)
    never = "postgresql://nobody@127.0.0.1:1/never"
    done = run("demo", "--jobs", "20", "--json", DIBS_DSN=never, TMPDIR=str(home))
    assert list(home.iterdir()) == []
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["ok"]
    assert told["states"] == {"succeeded": 19, "cancelled": 1}
    happened = told["happened"]
    assert happened["brought_back"] == happened["failed"] + happened["exhausted"] + happened["expired"] > 0
    assert happened["lost"] == 1
    assert min(happened["retried"], happened["snoozed"]) > 0


@pytest.mark.once
def test_an_interrupted_demo_leaves_quietly_and_the_next_in_a_pipe_is_plain_and_right(
    dsn: str, client: dibs.Client
) -> None:
    def heed() -> None:
        """A shell that starts tests in the background lets them ignore Ctrl-C, and their children inherit that."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(
        [*DIBS, "demo", "--dsn", dsn], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed
    ) as demo:
        assert demo.stdout is not None
        assert "300 jobs go in" in demo.stdout.readline()
        demo.send_signal(signal.SIGINT)
        _, err = demo.communicate(timeout=30)
    assert (demo.returncode, err.strip()) == (130, "")
    done = run("demo", "--jobs", "30", "--dsn", dsn, FORCE_COLOR="")
    assert done.returncode == 0, done.stdout + done.stderr  # What the other left does not disturb it.
    assert "\x1b" not in done.stdout
    assert "every job ended, and ended once" in done.stdout
    assert "29 succeeded, 1 cancelled" in done.stdout
    assert {job.state for job in client.find_jobs(limit=1000).jobs} == {"succeeded", "cancelled"}
    depths = client.queues.depths()
    assert sum(depth.cancelled for depth in depths) == 1
    assert sum(depth.waiting + depth.running for depth in depths) == 0


@contextmanager
def maintaining(dsn: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([*DIBS, "maintain", "--json", "--dsn", dsn], stdout=subprocess.PIPE, text=True)
    with process:
        try:
            yield process
        finally:
            process.kill()


def lines(out: IO[str] | None, event: str, chore: str | None = None) -> dict[str, Any]:
    """Read until a line tells of the event, of any chore or of this one."""
    assert out is not None
    for line in out:
        told: dict[str, Any] = json.loads(line)
        if told["event"] == event and chore in {None, told.get("chore")}:
            return told
    raise AssertionError(f"it ended and never said: {event}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_maintain_stops_cleanly_on_a_signal(dsn: str, client: dibs.Client, db: Any, number: signal.Signals) -> None:
    def workers() -> list[Any]:
        return list(db.execute("select name from dibs.workers").fetchall())

    client.enqueue("q", "k")
    client.claim("q", lease=0.1)
    with maintaining(dsn) as process:
        lines(process.stdout, "started")
        wait_until(workers, what="it is registered")
        lines(process.stdout, "done", "rescue")
        process.send_signal(number)
        lines(process.stdout, "stopped")
        assert process.wait(10) == 0
    assert workers() == []


def rescues_one(client: dibs.Client, process: subprocess.Popen[str]) -> None:
    client.enqueue("q", "k")
    client.claim("q", lease=0.1)
    assert lines(process.stdout, "done", "rescue")["ready"] == 1
    client.complete(client.claim("q", wait=5)[0])


def test_maintain_goes_on_after_a_restart_of_the_server(own_server: Server) -> None:
    with dibs.Client(own_server.dsn(), patience=20) as client, maintaining(own_server.dsn()) as process:
        rescues_one(client, process)
        own_server.stop("immediate")
        began = time.monotonic()
        assert "does not answer" in lines(process.stdout, "trouble")["error"]
        assert time.monotonic() - began < 4  # It is about 1.5 s, and 5 s until a chore gives up.
        own_server.start()
        assert lines(process.stdout, "recovered")["after"] > 1
        rescues_one(client, process)
        process.terminate()
        assert process.wait(10) == 0


def test_maintain_waits_for_a_server_that_is_not_there_yet_but_not_for_a_schema(
    empty_dsn: str, own_server: Server
) -> None:
    refused = run("maintain", "--dsn", empty_dsn)
    assert refused.returncode == 1
    assert "dibs migrate" in refused.stderr
    own_server.stop()
    with maintaining(own_server.dsn()) as process:
        lines(process.stdout, "waiting")
        own_server.start()
        wait_until(lambda: _is_registered(own_server.dsn()), what="it found the server")
        process.terminate()
        assert process.wait(10) == 0


def _is_registered(dsn: str) -> bool:
    import psycopg

    with psycopg.connect(dsn) as conn:
        return bool(conn.execute("select from dibs.workers").fetchall())


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for the shared embedded server that every user can enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="dibs-test-"))
    folder.chmod(0o755)
    monkeypatch.setenv("DIBS_DATA_DIR", str(folder / "shared"))
    monkeypatch.delenv("DIBS_DSN", raising=False)
    yield folder
    Server().stop("immediate")
    shutil.rmtree(folder)


def test_the_embedded_server_by_its_commands(home: Path) -> None:
    def dibs(*args: str, code: int = 0) -> Any:
        done = CliRunner().invoke(app, args)
        assert done.exit_code == code, done.output
        return done

    assert json.loads(dibs("embedded", "status", "--json", code=1).stdout)["running"] is False
    made = dibs("enqueue", "mail", "welcome", "--json")
    assert "enqueued" in made.stdout
    made = dibs("enqueue", "mail", "welcome")
    assert "using the embedded PostgreSQL" in made.stderr
    assert "running" in dibs("embedded", "status").stdout
    assert json.loads(dibs("embedded", "start", "--json").stdout)["running"] is True
    dibs("embedded", "psql", "-Xqc", "select * from dibs.queues")
    assert dibs("embedded", "stop").stdout == "stopped\n"
    assert dibs("embedded", "stop").stdout == "it was not running\n"
