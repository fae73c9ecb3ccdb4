"""Run 50,000 no-op tasks by one worker process and by a fleet of two, in turns; the history has the times.

How much of the processors one process and its server already use says what a second one can add at best.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, LiteralString

import dibs
from bench.processes import workers
from bench.tasks import noop

if TYPE_CHECKING:
    from subprocess import Popen

    import psycopg

    from bench.stage import Stage

WANTED = {"ratio": ("≥", 1.3)}
JOBS = 50_000
ROUNDS = 3


def run(stage: Stage) -> dict[str, float]:
    rounds: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    for _ in range(ROUNDS):
        for processes, measured in rounds.items():
            measured.append(_round(stage, processes))
    (one, one_busy), (two, two_busy) = ([median(values) for values in zip(*m, strict=True)] for m in rounds.values())
    return {
        "one_jobs_per_s": one,
        "two_jobs_per_s": two,
        "ratio": two / one,
        "one_busy": one_busy,
        "two_busy": two_busy,
    }


def _round(stage: Stage, processes: int) -> tuple[float, float]:
    """Jobs per second, and which part of the machine's processors was busy."""
    with dibs.Client(stage.dsn) as client, stage.connect() as conn:
        client.enqueue_many([noop.call(n) for n in range(JOBS)])
        conn.execute("checkpoint")
        began = conn.execute("select clock_timestamp()").fetchone()
        with workers(stage.dsn, 1, "--processes", str(processes), "--drain") as (parent,):
            _wait(conn, parent, "select exists (select from dibs.lease)")
            idle, total = _ticks()
            _wait(conn, parent, "select not exists (select from dibs.ready)")
            now_idle, now_total = _ticks()
            parent.wait()
        row = conn.execute(
            "select count(*) / extract(epoch from max(ended_at) - min(claimed_at)) from dibs.attempts"
            " where claimed_at > %s",
            began,
        ).fetchone()
    return float(row[0]) if row else 0.0, 1 - (now_idle - idle) / (now_total - total)


def _wait(conn: psycopg.Connection[Any], parent: Popen[bytes], question: LiteralString) -> None:
    while parent.poll() is None and conn.execute(question).fetchone() != (True,):
        time.sleep(0.02)


def _ticks() -> tuple[int, int]:
    """Return the ticks of the processors since boot: idle, and in all."""
    times = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return times[3] + times[4], sum(times)
