"""A worker run from code: ``App.run_worker`` and ``App.arun_worker``."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

import dibs
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = """
import asyncio, dibs, sys
app = dibs.App(sys.argv[1], queue="q")
@app.task(name="naps")
async def naps(seconds: float) -> None:
    await asyncio.sleep(seconds)
if __name__ == "__main__":
    print(app.run_worker(upkeep=False), "ended")
"""


@pytest.fixture
def app(dsn: str) -> Iterator[dibs.App]:
    app = dibs.App(dsn, queue="q")
    yield app
    app.close()


def start(folder: Path, dsn: str) -> subprocess.Popen[str]:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    return subprocess.Popen([sys.executable, str(program), dsn], stdout=subprocess.PIPE, text=True)


def is_running(client: dibs.Client) -> bool:
    return client.queues.depth("q").running == 1


def test_a_signal_lets_running_jobs_finish(tmp_path: Path, dsn: str, client: dibs.Client) -> None:
    job = client.enqueue("q", "naps", {"seconds": 0.5})
    with start(tmp_path, dsn) as program:
        wait_until(lambda: is_running(client), what="it runs")
        program.send_signal(signal.SIGTERM)
        said, _ = program.communicate(timeout=30)
    assert (program.returncode, said) == (0, "1 ended\n")
    assert client.status(job.id).state is dibs.State.SUCCEEDED


def test_a_second_signal_gives_them_back(tmp_path: Path, dsn: str, client: dibs.Client) -> None:
    job = client.enqueue("q", "naps", {"seconds": 600})
    with start(tmp_path, dsn) as program:
        wait_until(lambda: is_running(client), what="it runs")
        program.send_signal(signal.SIGTERM)
        program.send_signal(signal.SIGINT)
        said, _ = program.communicate(timeout=30)
    assert (program.returncode, said) == (0, "1 ended\n")
    assert client.status(job.id).state is dibs.State.READY


def test_a_drain_in_a_thread_takes_the_queues_of_the_tasks(app: dibs.App) -> None:
    @app.task(queue="mail")
    def here() -> str:
        return "mail"

    @app.task
    def there() -> str:
        return "q"

    jobs = here.enqueue(), there.enqueue()
    ended: list[int] = []
    thread = threading.Thread(target=lambda: ended.append(app.run_worker(drain=True, upkeep=False)))
    thread.start()
    thread.join(60)
    assert ended == [2]
    assert [job.status().state for job in jobs] == ["succeeded", "succeeded"]


async def test_cancelling_stops_in_order(app: dibs.App) -> None:
    began, finish = asyncio.Event(), asyncio.Event()

    @app.task
    async def waits() -> None:
        began.set()
        await finish.wait()

    job = waits.enqueue()
    working = asyncio.create_task(app.arun_worker(upkeep=False))
    await began.wait()
    working.cancel()
    asyncio.get_running_loop().call_soon(finish.set)
    with pytest.raises(asyncio.CancelledError):
        await working
    assert job.status().state is dibs.State.SUCCEEDED


async def test_cancelling_again_gives_back_what_runs(app: dibs.App) -> None:
    began, never = asyncio.Event(), asyncio.Event()

    @app.task
    async def waits() -> None:
        began.set()
        await never.wait()

    job = waits.enqueue()
    stopping = asyncio.Event()
    app.on(dibs.events.WorkerStopping)(lambda _: stopping.set())
    working = asyncio.create_task(app.arun_worker(upkeep=False))
    await began.wait()
    working.cancel()
    await stopping.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert job.status().state is dibs.State.READY


async def test_it_says_how_many_jobs_ended_and_leaves_the_clients_open(app: dibs.App) -> None:
    @app.task
    async def quick() -> None: ...

    await quick.aenqueue_many([quick.call() for _ in range(3)])
    assert await app.arun_worker(drain=True, upkeep=False) == 3
    assert (await app.async_client().queues.depth("q")).waiting == 0
    await app.aclose()


async def test_blocking_a_running_loop_is_refused(app: dibs.App) -> None:
    with pytest.raises(dibs.InvalidArgument, match="event loop"):
        app.run_worker(drain=True)


@pytest.mark.parametrize(
    ("options", "told"),
    [({}, "at least one queue"), ({"queues": "mail"}, "list of names"), ({"queues": ["q"], "threads": 0}, "threads")],
)
def test_settings_that_make_no_sense_are_refused(app: dibs.App, options: Any, told: str) -> None:
    with pytest.raises(dibs.InvalidArgument, match=told):
        app.run_worker(**options)
