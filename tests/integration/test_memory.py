"""How much memory a worker needs, and for how long."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dibs
from dibs.client.context import Context
from tests.chaos.working import start
from tests.waiting import wait_until

if TYPE_CHECKING:
    import subprocess

IN_HAND = 2_000
MOST = 200
"""Megabytes."""
APP = """
@app.task(name="waits")
async def waits(text: str) -> None:
    await asyncio.sleep(3600)
"""


def megabytes(worker: subprocess.Popen[str]) -> int:
    """The most that a process has had in memory so far."""
    status = Path(f"/proc/{worker.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) // 1024


def test_a_worker_with_two_thousand_jobs_in_hand(client: dibs.Client, dsn: str, tmp_path: Path) -> None:
    client.enqueue_many(dibs.NewJob(queue="q", kind="waits", payload={"text": "x" * 10_000}) for _ in range(IN_HAND))
    worker = start(tmp_path, dsn, "--slots", str(IN_HAND), app=APP)
    try:
        wait_until(lambda: client.queues.depth("q").running == IN_HAND, timeout=60, what="all are in hand")
        assert megabytes(worker) < MOST
    finally:
        worker.kill()
        worker.wait(10)


def test_an_attempt_needs_no_garbage_collector() -> None:
    """With thousands of them per second, each with its payload, none may wait for it."""
    job: Any = object()
    held = sys.getrefcount(job)
    gc.disable()
    try:
        assert Context(job).batch
        assert sys.getrefcount(job) == held
    finally:
        gc.enable()
