"""Real ``dibs worker`` processes, for scenarios that need them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import dibs


@contextlib.contextmanager
def workers(dsn: str, count: int, *options: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start this many of them, and stop them at the end."""
    command = [
        sys.executable,
        "-m",
        "dibs",
        "worker",
        "bench.tasks:app",
        "--dsn",
        dsn,
        "--log-level",
        "error",
        *options,
    ]
    started = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield started
    finally:
        for worker in started:
            if worker.poll() is None:
                worker.send_signal(signal.SIGTERM)
        for worker in started:
            worker.wait(60)


def wait_for_workers(client: dibs.Client, count: int) -> None:
    """Wait until so many are registered."""
    while len(client.workers.list()) < count:
        time.sleep(0.05)


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
