"""Handlers that raise what is no Exception, swallow cancellations, or never end: they harm themselves only."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import dibs
from dibs.worker import Worker, WorkerSettings
from dibs.worker.executor import Executor
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.once

ONCE = dibs.Retry(max_attempts=1)


class Panic(BaseException):
    """As raised by extensions in other languages."""


RAISED: tuple[type[BaseException], ...] = (
    Panic, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError,
)  # fmt: skip


@pytest.fixture
def app(dsn: str) -> Iterator[dibs.App]:
    app = dibs.App(dsn, queue="q")
    yield app
    app.close()


async def drain(app: dibs.App, **settings: Any) -> Worker:
    worker = Worker(app, WorkerSettings(("q",), **{"drain": True, "upkeep": False, "slots": 1, **settings}))
    async with asyncio.timeout(30):
        await worker.run()
    return worker


async def test_whatever_a_handler_raises_is_a_failed_attempt(app: dibs.App) -> None:
    """A panic of an extension is a BaseException; it must not take the runner, the worker or a neighbour with it."""

    @app.task(retry=ONCE)
    async def on_the_loop(n: int) -> None:
        raise RAISED[n]

    @app.task(retry=ONCE)
    def in_a_thread(n: int) -> None:
        raise RAISED[n]

    @app.task(retry=ONCE, timeout=5)
    async def with_a_timeout(n: int) -> None:
        raise RAISED[n]

    @app.batch(max=1, within=0.0, retry=ONCE)
    async def in_a_batch(items: list[int]) -> None:
        raise RAISED[items[0]]

    @app.task
    async def neighbour() -> None: ...

    bad, good = [], []
    for task in (on_the_loop, in_a_thread, with_a_timeout, in_a_batch):
        for n in range(len(RAISED)):
            bad.append((RAISED[n], task.enqueue(n)))
            good.append(neighbour.enqueue())
    await drain(app)
    assert {job.status().state for job in good} == {dibs.State.SUCCEEDED}
    for raised, job in bad:
        assert job.status().state is dibs.State.EXHAUSTED
        shown = app.client.show(job.id) or {}
        assert raised.__name__ in shown["attempts"][0]["error"]


async def test_a_swallowed_cancellation_leaves_its_runner_sound(app: dibs.App) -> None:
    """A cancellation that a handler swallowed must not make a later one of its neighbour's kill the runner."""
    began = asyncio.Event()

    @app.task
    async def swallows() -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "never mind"
        return ""

    @app.task(retry=ONCE)
    async def awaits_a_cancelled_task() -> None:
        inner = asyncio.create_task(asyncio.sleep(60))
        inner.cancel()
        await inner

    @app.task
    async def cancels_itself() -> str:
        task = asyncio.current_task()
        assert task
        task.cancel()
        return "done"

    @app.task
    async def neighbour() -> None: ...

    first = swallows.using(priority=9).enqueue()
    failing, selfish = awaits_a_cancelled_task.enqueue(), cancels_itself.enqueue()
    last = neighbour.using(priority=-9).enqueue()
    running = asyncio.create_task(drain(app))
    await began.wait()
    assert await asyncio.to_thread(first.cancel) == "requested"
    await running
    assert [job.status().state for job in (first, failing, selfish, last)] == [
        "succeeded", "exhausted", "succeeded", "succeeded",
    ]  # fmt: skip
    assert (first.result(), selfish.result()) == ("never mind", "done")


async def test_a_runner_that_ends_is_replaced_and_its_job_reported(
    app: dibs.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect of ours may end a runner: it is told, and neither its job nor its place is lost."""
    troubles: list[dibs.events.Trouble] = []
    app.events.on(dibs.events.Trouble, troubles.append)
    find = Executor.task

    def break_once(self: Executor, kind: str) -> Any:
        if kind == "odd":
            raise RuntimeError("a defect")
        return find(self, kind)

    monkeypatch.setattr(Executor, "task", break_once)

    @app.task
    async def neighbour() -> None: ...

    odd = app.client.enqueue("q", "odd", max_attempts=1)
    job = neighbour.enqueue()
    await drain(app)
    assert [t.where for t in troubles] == ["running jobs (runner-0)"]
    assert [s.state for s in app.client.status_many([odd.id, job.id])] == ["exhausted", "succeeded"]


PROGRAM = """
import asyncio, pathlib, sys, time
import dibs
from dibs.runtime import running, signals
from dibs.worker import runners

# Shorter than in earnest.
runners.LEAVE_BEHIND_AFTER, running.LEFTOVERS_END_WITHIN, signals.CLOSING = 0.3, 0.3, 2.0

app = dibs.App(sys.argv[1], queue="q")

class Panic(BaseException): ...

async def raises(error):
    raise error

@app.task(name="raises-in-a-task", retry=dibs.Retry(max_attempts=1))
async def raises_in_a_task(n: int) -> None:
    await asyncio.create_task(raises((KeyboardInterrupt, SystemExit)[n]()))

@app.task(name="panics", process=True, retry=dibs.Retry(max_attempts=1))
def panics() -> None:
    raise Panic("in a process")

@app.task(name="ignores")
async def ignores() -> None:
    pathlib.Path("began").touch()
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

@app.task(name="blocks")
async def blocks() -> None:
    pathlib.Path("began").touch()
    time.sleep(3600)

@app.task(name="naps")
async def naps() -> None:
    await asyncio.sleep(0.2)

if __name__ == "__main__":
    try:
        print(app.run_worker(drain="drain" in sys.argv, grace=0.2, upkeep=False), "ended")
    except dibs.errors.HandlersLeft as left:
        time.sleep(2)  # for longer than the worker had to end
        print(left.message)
"""


def start(folder: Path, dsn: str, *options: str) -> subprocess.Popen[str]:
    (folder / "stubborn.py").write_text(PROGRAM)
    command = [sys.executable, "stubborn.py", dsn, *options]
    if options[:1] == ("worker",):
        command = [sys.executable, "-m", "dibs", "worker", "stubborn:app", "--grace", "0.2", "--dsn", dsn, *options[1:]]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_an_interrupt_of_a_handlers_own_task_ends_its_job_only(tmp_path: Path, dsn: str, client: dibs.Client) -> None:
    """asyncio lets a KeyboardInterrupt or SystemExit of any task end the loop; the worker goes on."""
    naps = [client.enqueue("q", "naps") for _ in range(3)]
    bad = [client.enqueue("q", "raises-in-a-task", {"n": n}, max_attempts=1) for n in range(2)]
    bad.append(client.enqueue("q", "panics", max_attempts=1))
    with start(tmp_path, dsn, "drain") as program:
        said, errors = program.communicate(timeout=60)
    assert (program.returncode, said) == (0, "6 ended\n"), errors
    assert [s.state for s in client.status_many([job.id for job in naps])] == ["succeeded"] * 3
    assert [s.state for s in client.status_many([job.id for job in bad])] == ["exhausted"] * 3
    assert "Panic: in a process" in client.why(bad[2].id)


@pytest.mark.parametrize("processes", [(), ("--processes", "2")])
def test_a_handler_that_ignores_cancellation_is_left_behind(
    tmp_path: Path, dsn: str, client: dibs.Client, processes: tuple[str, ...]
) -> None:
    """After the grace time and a little the worker ends without it, gives its job back, and says so by its status."""
    made = client.enqueue("q", "ignores")
    with start(tmp_path, dsn, "worker", *processes) as worker:
        wait_until((tmp_path / "began").exists, what="it runs")
        worker.send_signal(signal.SIGTERM)
        _, errors = worker.communicate(timeout=30)
    assert worker.returncode == 5, errors
    assert "a handler went on though it was told to stop" in errors
    assert client.status(made.id).state is dibs.State.READY
    assert (client.show(made.id) or {})["charged"] == 0


def test_a_signal_ends_a_worker_whose_loop_is_blocked(tmp_path: Path, dsn: str, client: dibs.Client) -> None:
    """Nothing that a handler does keeps the process from ending; its log says where it was."""
    client.enqueue("q", "blocks")
    with start(tmp_path, dsn) as program:
        wait_until((tmp_path / "began").exists, what="it runs")
        program.send_signal(signal.SIGTERM)
        _, errors = program.communicate(timeout=30)
    assert program.returncode == 5, errors
    assert "did not end in time" in errors
    assert "in blocks" in errors


def test_a_program_that_went_on_after_its_worker_is_not_ended(tmp_path: Path, dsn: str, client: dibs.Client) -> None:
    client.enqueue("q", "ignores")
    with start(tmp_path, dsn) as program:
        wait_until((tmp_path / "began").exists, what="it runs")
        program.send_signal(signal.SIGTERM)
        said, errors = program.communicate(timeout=30)
    assert program.returncode == 0, errors
    assert "told to stop" in said
