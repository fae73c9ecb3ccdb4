"""The same 50,000 no-op tasks, run by one worker process and by a fleet of two, in turns; timed by the history."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import dibs
from bench.processes import workers
from bench.tasks import noop

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"ratio": ("≥", 1.3)}
JOBS = 50_000
ROUNDS = 3


def run(stage: Stage) -> dict[str, float]:
    rates: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(ROUNDS):
        for processes, measured in rates.items():
            measured.append(_rate(stage, processes))
    one, two = (median(measured) for measured in rates.values())
    return {"one_jobs_per_s": one, "two_jobs_per_s": two, "ratio": two / one}


def _rate(stage: Stage, processes: int) -> float:
    with dibs.Client(stage.dsn) as client, stage.connect() as conn:
        client.enqueue_many([noop.call(n) for n in range(JOBS)])
        conn.execute("checkpoint")
        began = conn.execute("select clock_timestamp()").fetchone()
        with workers(stage.dsn, 1, "--processes", str(processes), "--drain") as (parent,):
            parent.wait()
        row = conn.execute(
            "select count(*) / extract(epoch from max(ended_at) - min(claimed_at)) from dibs.attempts"
            " where claimed_at > %s",
            began,
        ).fetchone()
    return float(row[0]) if row else 0.0
