"""Real worker processes for the chaos tests, and an app for them."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

APP = """
import asyncio
import dibs

app = dibs.App(queue="q")
again = dibs.Retry(max_attempts=50, backoff=dibs.constant(0.05))

@app.task(name="noop", retry=again)
async def noop(n: int) -> None: ...

@app.task(name="naps", retry=again)
async def naps(seconds: float) -> None:
    await asyncio.sleep(seconds)

@app.task(name="writes", retry=again)
async def writes(n: int) -> None:
    async with dibs.context().transaction() as conn:
        await conn.execute("insert into effect values (%s)", (n,))
        await asyncio.sleep(0.002)
"""


def start(folder: Path, dsn: str, *options: str, app: str = "") -> subprocess.Popen[str]:
    """A ``dibs worker`` of that app, with more tasks."""
    (folder / "chaos_app.py").write_text(APP + app)
    command = [sys.executable, "-m", "dibs", "worker", "chaos_app:app", "--dsn", dsn, *options]
    with (folder / "worker.log").open("a") as log:
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, text=True)


@contextlib.contextmanager
def working(
    folder: Path, dsn: str, count: int = 1, *options: str, app: str = ""
) -> Iterator[list[subprocess.Popen[str]]]:
    """Some of them, that are stopped when the block ends."""
    workers = [start(folder, dsn, *options, app=app) for _ in range(count)]
    try:
        yield workers
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.send_signal(signal.SIGTERM)
        for worker in workers:
            worker.wait(40)
