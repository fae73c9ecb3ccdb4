"""Several worker processes under one parent, probes, and a worker that restarts when its code changes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import dibs
from dibs.cli.app import dibs as cli
from dibs.runtime.children import Children
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

APP = """
import asyncio, dibs, os, pathlib, time
app = dibs.App(queue="q")
@app.task(name="where")
async def where(name: str, seconds: float = 0) -> int:
    pathlib.Path(name).touch()
    await asyncio.sleep(seconds)
    return os.getpid()
@app.task(name="waits")
async def waits(name: str, until: str) -> None:
    pathlib.Path(name).touch()
    while not pathlib.Path(until).exists():
        await asyncio.sleep(0.01)
@app.task(name="version")
async def version() -> int:
    return 1
@app.task(name="exits", max_attempts=10)
async def exits() -> None:
    os._exit(7)
@app.task(name="blocks")
async def blocks(name: str, until: str) -> None:
    pathlib.Path(name).touch()
    while not pathlib.Path(until).exists():
        time.sleep(0.01)
"""


@contextlib.contextmanager
def running(folder: Path, command: list[str], app: str = APP) -> Iterator[subprocess.Popen[str]]:
    """A worker that is stopped when the block ends."""
    (folder / "shop.py").write_text(app)
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as worker:
        try:
            yield worker
        finally:
            if worker.poll() is None:
                worker.send_signal(signal.SIGTERM)
                worker.communicate(timeout=40)


def working(folder: Path, dsn: str, *options: str) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    """A ``dibs worker`` that is stopped when the block ends."""
    return running(folder, [sys.executable, "-m", "dibs", "worker", "shop:app", "--dsn", dsn, *options])


def workers(client: dibs.Client) -> set[int]:
    return {w.facts["pid"] for w in client.workers.list()}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def status(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


@pytest.mark.once
def test_a_worker_process_that_dies_is_replaced(tmp_path: Path, dsn: str, client: dibs.Client) -> None:
    """Each touches its own health file, which says nothing of another; the parent's says that all of them run."""
    port, file = free_port(), tmp_path / "well"
    files = [file, tmp_path / "well.1", tmp_path / "well.2"]
    options = ("--processes", "2", "--health", str(port), "--health-file", str(file))
    with working(tmp_path, dsn, *options) as parent:
        wait_until(lambda: len(workers(client)) == 2, what="both work")
        wait_until(lambda: status(port, "/ready") == 200, what="both are ready")
        wait_until(lambda: all(one.exists() for one in files), what="all files are there")
        first = workers(client)
        os.kill(min(first), signal.SIGKILL)
        wait_until(lambda: len(workers(client) - first) == 1, what="another took its place")
        parent.send_signal(signal.SIGTERM)
        parent.communicate(timeout=30)
        assert parent.returncode == 0
    assert [one for one in files if one.exists()] == []


def test_a_worker_that_an_operator_stops_finishes_its_jobs_and_is_not_replaced(
    tmp_path: Path, dsn: str, client: dibs.Client
) -> None:
    port = free_port()
    options = ("--processes", "2", "--slots", "1", "--health", str(port), "--log-format", "json")
    with working(tmp_path, dsn, *options) as parent:
        made = [client.enqueue("q", "where", {"name": f"began-{n}", "seconds": 2}) for n in range(2)]
        wait_until(lambda: (tmp_path / "began-0").exists() and (tmp_path / "began-1").exists(), what="both run")
        held = {job.worker: job.id for job in client.workers.running()}
        one, other = sorted(w.id for w in client.workers.list() if w.id in held)
        client.workers.stop(one)
        asked = time.monotonic()
        waiting = client.enqueue("q", "version")
        wait_until(lambda: [w.id for w in client.workers.list()] == [other], what="it said goodbye")
        assert time.monotonic() - asked < 8  # The bell was heard; without it, the next heartbeat is up to 10 s away.
        assert client.status(held[one]).state is dibs.State.SUCCEEDED
        wait_until(lambda: client.status(waiting.id).state is dibs.State.SUCCEEDED, what="the other goes on")
        assert status(port, "/ready") == 200  # Nobody is missing.
        run = [sys.executable, "-m", "dibs", "workers", "stop", str(other), "--dsn", dsn, "--json"]
        told = subprocess.run(run, capture_output=True, text=True, timeout=60, check=True)
        assert json.loads(told.stdout) == {"worker": other, "answer": "requested"}
        _, log = parent.communicate(timeout=30)
        assert parent.returncode == 0
    assert [s.state for s in client.status_many([m.id for m in made])] == ["succeeded"] * 2
    events = [json.loads(line)["event"] for line in log.splitlines()]
    assert (events.count("StopAsked"), events.count("ChildLeft"), events.count("ChildStarted")) == (2, 2, 2)


@pytest.mark.once
def test_the_children_stop_when_the_parent_is_killed(tmp_path: Path, dsn: str, client: dibs.Client) -> None:
    with working(tmp_path, dsn, "--processes", "2") as parent:
        wait_until(lambda: len(workers(client)) == 2, what="both work")
        parent.kill()
        wait_until(lambda: not workers(client), timeout=20, what="both said goodbye")


def test_a_fleet_finishes_its_jobs_on_sigterm_even_if_all_are_signalled(
    tmp_path: Path, dsn: str, client: dibs.Client
) -> None:
    with working(tmp_path, dsn, "--processes", "2", "--slots", "1") as parent:
        made = [client.enqueue("q", "where", {"name": f"began-{n}", "seconds": 1}) for n in range(2)]
        wait_until(lambda: (tmp_path / "began-0").exists() and (tmp_path / "began-1").exists(), what="both run")
        for pid in (*workers(client), parent.pid):
            os.kill(pid, signal.SIGTERM)
        parent.communicate(timeout=30)
        assert parent.returncode == 0
    assert [s.state for s in client.status_many([m.id for m in made])] == ["succeeded"] * 2


@pytest.mark.once
def test_no_child_shows_the_dsn_or_imports_from_the_folder(tmp_path: Path, dsn: str, client: dibs.Client) -> None:
    """Every user sees command lines; and ``python -m`` puts the folder before all libraries."""
    trap = "import pathlib; pathlib.Path(__file__).with_suffix('.sprung').touch()"
    for name in ("rich", "click", "psycopg"):
        (tmp_path / f"{name}.py").write_text(trap)
    app = APP.replace("App(", "App('postgresql://nobody@127.0.0.1:1/never', ")
    dibs_itself = str(Path(sys.executable).with_name("dibs"))
    for given in (["shop:app"], ["--channels", "--queue", "q"], ["shop:app", "--reload"]):
        command = [dibs_itself, "worker", "--dsn", f"{dsn}&password=hunter2", "--processes", "2", *given]
        with running(tmp_path, command, app) as parent:
            wait_until(lambda: len(workers(client)) == 2, what="both work")
            shown = [Path(f"/proc/{pid}/cmdline").read_text() for pid in workers(client)]
            parent.terminate()
            _, err = parent.communicate(timeout=40)
        assert "every user of this machine can see the password" in err
        assert all("worker" in line and "hunter2" not in line for line in shown)
    assert not list(tmp_path.glob("*.sprung"))


@pytest.mark.once
def test_an_app_that_cannot_be_imported_is_explained(
    tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def say(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            cli.main(["worker", *arguments])
        assert ended.value.code in {1, 2}
        return capsys.readouterr().err

    modules = {
        "missing": ("import nonexisting_lib\n", "No module named 'nonexisting_lib'", 1),
        "broken": ("x = 1\nx = (\n", "SyntaxError", 2),
        "raising": ("x = 1\n\nraise RuntimeError('no settings')\n", "RuntimeError: no settings", 3),
    }
    for name, (text, words, line) in modules.items():
        (tmp_path / f"{name}.py").write_text(text)
        told = say(f"{name}:app", "--dsn", dsn)
        assert f"{name} cannot be imported" in told
        assert words in told
        assert f"{tmp_path}/{name}.py, line {line}" in told
        assert "Traceback" not in told
    (tmp_path / "children_shop.py").write_text(APP + "number = 7\n")
    assert "there is no module children_shopp" in say("children_shopp:app")
    assert "children_shop has no appp; did you mean 'app'?" in say("children_shop:appp")
    assert "is a int, not a dibs.App" in say("children_shop:number")
    told = say("children_shop:app", "--queue", "mail,weights=3")
    assert "did you mean" in told
    assert "weight" in told
    del sys.modules["children_shop"]


SLEEPS = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, {on_sigterm})
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""


@pytest.mark.once
async def test_a_restart_replaces_a_process_that_was_to_run_until_it_is_done(tmp_path: Path) -> None:
    script = SLEEPS.format(on_sigterm="lambda *_: sys.exit(0)")
    ready = tmp_path / "ready"
    children = Children(lambda _: [sys.executable, "-c", script, str(ready)], 1, replace_done=False)
    running = asyncio.create_task(children.run())
    await asyncio.to_thread(wait_until, ready.exists, what="it runs")
    ready.unlink()
    children.restart()
    await asyncio.to_thread(wait_until, ready.exists, what="another runs")
    children.stop()
    assert await asyncio.wait_for(running, 20) == 0


@pytest.mark.once
async def test_a_process_that_is_done_is_not_missing() -> None:
    scripts = ("pass", "import time; time.sleep(600)")
    children = Children(lambda n: [sys.executable, "-c", scripts[n]], 2, replace_done=False)
    running = asyncio.create_task(children.run())
    assert children.missing == 2
    await asyncio.to_thread(
        wait_until, lambda: (children.missing, children.alive) == (0, 1), what="one is done, the other runs"
    )
    children.stop()
    assert await asyncio.wait_for(running, 20) == 0


@pytest.mark.once
async def test_a_process_that_is_made_during_a_stop_is_killed_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dibs.runtime.children.KILL_AFTER", 0.1)
    ready = tmp_path / "ready"
    command = [sys.executable, "-c", SLEEPS.format(on_sigterm="signal.SIG_IGN"), str(ready)]
    children = Children(lambda _: command, 1, grace=0.1)
    make = asyncio.create_subprocess_exec

    async def make_during_a_stop(*args: Any, **options: Any) -> asyncio.subprocess.Process:
        made = await make(*args, **options)
        await asyncio.to_thread(wait_until, ready.exists, what="it ignores SIGTERM")
        children.stop()
        return made

    monkeypatch.setattr(asyncio, "create_subprocess_exec", make_during_a_stop)
    assert await asyncio.wait_for(children.run(), 20) == signal.SIGKILL


@pytest.mark.once
async def test_what_cannot_start_waits_for_a_restart(tmp_path: Path) -> None:
    """The same code would fail the same way: with --reload, only a change of it starts a process again."""
    begun = tmp_path / "begun"
    script = f"import pathlib, sys; pathlib.Path({str(begun)!r}).open('a').write('x'); sys.exit(1)"
    again = asyncio.Event()
    died: list[int] = []
    children = Children(
        lambda _: [sys.executable, "-c", script], 1, status_to_wait=1,
        started=lambda _: again.set(), died=lambda pid, _: died.append(pid),
    )  # fmt: skip
    running = asyncio.create_task(children.run())
    for times in (1, 2):
        await asyncio.wait_for(again.wait(), 20)
        again.clear()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(again.wait(), 1.0)  # Without a restart the pauses are 0.2 s and a little more.
        assert (begun.read_text(), children.alive) == ("x" * times, 0)
        children.restart()
    await asyncio.wait_for(again.wait(), 20)
    children.stop()
    assert await asyncio.wait_for(running, 20) in {0, 1}  # 0 if it was stopped before it failed


@pytest.mark.once
def test_what_a_worker_says_at_its_start_and_end(tmp_path: Path, dsn: str) -> None:
    (tmp_path / "shop.py").write_text(APP)
    command = [sys.executable, "-m", "dibs", "worker", "shop:app", "--dsn", dsn, "--drain"]

    def said(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *options], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )

    typo = said("--queue", "qq", "--log-format", "json")
    assert "no task of this app is enqueued to the queue 'qq'; did you mean 'q'?" in typo.stderr
    assert typo.stdout == ""
    assert [json.loads(line) for line in typo.stderr.splitlines()]
    assert said("--log-format", "none").stderr == ""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for options in (["--health", port], ["--metrics", port, "--processes", "2"]):
            refused = said(*options)
            assert refused.returncode == 1
            assert f"port {port} of 127.0.0.1 cannot be opened" in refused.stderr
            assert "Traceback" not in refused.stderr


def test_a_fleet_drains(tmp_path: Path, dsn: str, client: dibs.Client) -> None:
    made = client.enqueue_many(dibs.NewJob(queue="q", kind="where", payload={"name": "x"}) for _ in range(500))
    with working(tmp_path, dsn, "--processes", "2", "--drain") as parent:
        parent.communicate(timeout=60)
        assert parent.returncode == 0
    assert {str(state) for state in [s.state for s in client.status_many([m.id for m in made])]} == {"succeeded"}


def test_a_job_that_ends_its_process_is_quarantined_and_takes_no_other_with_it(
    tmp_path: Path, dsn: str, client: dibs.Client
) -> None:
    """A crash is counted apart from a failure, and what dies twice runs alone."""
    client.queues.set("q", lease=0.5)
    others = [client.enqueue("q", "where", {"name": "x", "seconds": 0.05}) for _ in range(200)]
    bad = client.enqueue("q", "exits", priority=9)
    with working(tmp_path, dsn, "--processes", "2"):
        wait_until(lambda: client.status(bad.id).state is dibs.State.EXHAUSTED, timeout=60, what="it is quarantined")
        wait_until(
            lambda: {str(s) for s in [s.state for s in client.status_many([o.id for o in others])]} == {"succeeded"},
            timeout=60,
            what="all others finish",
        )
    assert "its worker died, hung or lost the database (3 times)" in client.why(bad.id)


@pytest.mark.once
def test_probes(tmp_path: Path, dsn: str, client: dibs.Client) -> None:
    port, file = free_port(), tmp_path / "well"
    with working(tmp_path, dsn, "--health", str(port), "--health-file", str(file)) as worker:
        wait_until(lambda: status(port, "/live") == status(port, "/ready") == 200, what="it is ready")
        wait_until(file.exists, what="the file is there")
        assert status(port, "/other") == 404
        client.enqueue("q", "waits", {"name": "began", "until": "go"})
        wait_until((tmp_path / "began").exists, what="it runs")
        worker.send_signal(signal.SIGTERM)
        wait_until(lambda: (status(port, "/live"), status(port, "/ready")) == (200, 503), what="it takes no more")
        (tmp_path / "go").touch()
        worker.communicate(timeout=30)
    assert not file.exists()


@pytest.mark.once
def test_probes_are_answered_while_a_handler_blocks_the_loop(tmp_path: Path, dsn: str, client: dibs.Client) -> None:
    """A probe that finds nobody would have a healthy worker killed."""
    port, file = free_port(), tmp_path / "well"
    with working(tmp_path, dsn, "--health", str(port), "--health-file", str(file), "--metrics", str(port)) as worker:
        wait_until(lambda: status(port, "/ready") == 200, what="it is ready")
        client.enqueue("q", "blocks", {"name": "began", "until": "go"})
        wait_until((tmp_path / "began").exists, what="it blocks the loop")
        assert (status(port, "/live"), status(port, "/ready")) == (200, 200)
        file.unlink(missing_ok=True)
        wait_until(file.exists, what="the file is touched again")
        (tmp_path / "go").touch()
        assert "dibs_" in page(port)
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=30)


def page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        return str(answer.read().decode())


@pytest.mark.once
def test_metrics_of_one_worker_and_of_a_fleet(tmp_path: Path, dsn: str, client: dibs.Client) -> None:
    port = free_port()
    client.enqueue_many(dibs.NewJob(queue="q", kind="where", payload={"name": "x"}) for _ in range(20))
    with working(tmp_path, dsn, "--health", str(port), "--metrics", str(port)):
        wait_until(lambda: status(port, "/ready") == 200 and client.queues.depth("q").waiting == 0, what="all ran")
        counted = re.compile(r"^dibs_run_seconds_count\{.*\} 20", re.MULTILINE)
        wait_until(lambda: counted.search(page(port)), what="all are counted")
        assert 'dibs_jobs{queue="q",state="ready"} 0' in page(port)
    client.enqueue_many(dibs.NewJob(queue="q", kind="where", payload={"name": "x"}) for _ in range(20))
    with working(tmp_path, dsn, "--processes", "2", "--metrics", str(port), "--log-format", "json") as parent:
        wait_until(lambda: len(workers(client)) == 2 and client.queues.depth("q").waiting == 0, what="all ran")
        wait_until(lambda: len(set(re.findall(r'process="(\d+)"', page(port)))) == 2, what="both are on the page")
        parent.send_signal(signal.SIGTERM)
        _, log = parent.communicate(timeout=30)
    events = [json.loads(line)["event"] for line in log.splitlines()]
    assert events.count("ChildStarted") == events.count("WorkerStarted") == events.count("WorkerStopped") == 2


def edit_at_once(file: Path, text: str) -> None:
    """Change a file within the second in which it was made."""
    made = file.stat()
    new = file.with_suffix(".new")
    new.write_text(text)
    os.utime(new, ns=(made.st_atime_ns, made.st_mtime_ns // 10**9 * 10**9 + (made.st_mtime_ns + 1) % 10**9))
    new.replace(file)


@pytest.mark.once
def test_reload(tmp_path: Path, dsn: str, client: dibs.Client) -> None:
    with working(tmp_path, dsn, "--reload"):
        first = client.enqueue("q", "version")
        wait_until(lambda: client.status(first.id).state is dibs.State.SUCCEEDED, what="version 1 ran")
        before = workers(client)
        edit_at_once(tmp_path / "shop.py", APP.replace("return 1", "return 2"))
        wait_until(lambda: workers(client) and not workers(client) & before, what="it restarted")
        second = client.enqueue("q", "version")
        wait_until(lambda: client.status(second.id).state is dibs.State.SUCCEEDED, what="version 2 ran")
    results = [(client.show(made.id) or {})["attempts"][0]["result"] for made in (first, second)]
    assert results == [1, 2]
