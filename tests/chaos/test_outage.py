"""An outage of the database is noticed within two seconds: in the log, and by the probes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import dibs
from dibs.embedded.postmaster import find
from dibs.events import OutageBegan, OutageEnded
from dibs.worker import Worker, WorkerSettings
from tests.chaos.proxy import Proxy
from tests.chaos.working import working
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dibs.embedded import Server

WITHIN = 2.0
SLACK = 2.0
"""For a machine that is busy with other tests."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


def ready(port: int) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
    except OSError as error:
        return 0, str(error)


def logged(*folders: Path) -> Counter[str]:
    """How often which event was logged, of outages."""
    lines = [line for folder in folders for line in (folder / "worker.log").read_text().splitlines()]
    events = [json.loads(line)["event"] for line in lines if line.startswith("{")]
    return Counter(event for event in events if event.startswith("Outage"))


@contextmanager
def paused(server: Server) -> Iterator[None]:
    """Nothing is closed, and nothing answers: no process of the server runs."""
    postmaster = find(server.data_dir)
    assert postmaster is not None
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(postmaster.pid)], capture_output=True, check=True)
    pids = [postmaster.pid, *map(int, children.stdout.split())]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def stopped(server: Server) -> Iterator[None]:
    server.stop("immediate")
    try:
        yield
    finally:
        server.start()


def test_an_outage_is_logged_and_makes_a_worker_unready_within_two_seconds(tmp_path: Path, own_server: Server) -> None:
    """Also one in which connections stay open and nothing answers; its end is logged once, too."""
    alone, parent = tmp_path / "alone", tmp_path / "parent"
    ports = [free_port(), free_port()]
    for folder in (alone, parent):
        folder.mkdir()
    common = ("--log-format", "json", "--log-level", "warning", "--no-upkeep", "--health")
    with (
        working(alone, own_server.dsn(), 1, *common, str(ports[0])),
        working(parent, own_server.dsn(), 1, *common, str(ports[1]), "--processes", "2"),
    ):
        with dibs.Client(own_server.dsn()) as client:
            wait_until(lambda: len(client.workers.list()) == 3, what="all have started")
        wait_until(lambda: all(ready(port)[0] == 200 for port in ports), what="they are ready")
        for outage in (stopped, paused):
            for folder in (alone, parent):
                (folder / "worker.log").write_text("")
            with outage(own_server):
                began = time.monotonic()
                wait_until(lambda: all(ready(port)[0] == 503 for port in ports), what="they are not ready")
                assert all("database" in ready(port)[1] for port in ports)
                wait_until(lambda: logged(alone, parent) == {"OutageBegan": 3}, what="it is logged")
                assert time.monotonic() - began < WITHIN + SLACK
            wait_until(lambda: all(ready(port)[0] == 200 for port in ports), what="they are ready again")
            wait_until(lambda: logged(alone, parent)["OutageEnded"] == 3, what="its end is logged")
            assert logged(alone, parent)["OutageBegan"] == 3


async def test_an_outage_at_the_start_is_told_too(dsn: str) -> None:
    began, ended = asyncio.Event(), asyncio.Event()
    with Proxy(dsn) as proxy:
        proxy.go_silent(for_new=True)
        app = dibs.App(f"{proxy.dsn}&connect_timeout=2", queue="q")
        app.events.on(OutageBegan, lambda _: began.set())
        app.events.on(OutageEnded, lambda _: ended.set())
        worker = Worker(app, WorkerSettings(["q"], upkeep=False))
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(WITHIN + SLACK):
            await began.wait()
        assert worker.unready() == "starting"
        proxy.speak()
        async with asyncio.timeout(30):
            await ended.wait()
            worker.stop()
            await running
        app.close()


async def test_a_blocked_event_loop_is_no_outage(dsn: str) -> None:
    told: list[OutageBegan] = []
    app = dibs.App(dsn, queue="q")
    app.events.on(OutageBegan, told.append)

    @app.task
    async def blocks() -> None:
        threading.Event().wait(1.5)

    job = blocks.enqueue()
    await Worker(app, WorkerSettings(["q"], drain=True, upkeep=False)).run()
    assert (job.status().state, told) == ("succeeded", [])
    app.close()
