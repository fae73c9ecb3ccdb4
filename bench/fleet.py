"""The same 50,000 no-op tasks, run by one worker process and by a fleet of two, in the same run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import dibs
from bench.processes import workers
from bench.tasks import noop

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"ratio": ("≥", 1)}
JOBS = 50_000


def run(stage: Stage) -> dict[str, float]:
    rates = {count: _rate(stage, count) for count in (1, 2)}
    return {"one_jobs_per_s": rates[1], "two_jobs_per_s": rates[2], "ratio": rates[2] / rates[1]}


def _rate(stage: Stage, processes: int) -> float:
    with dibs.Client(stage.dsn) as client, stage.connect() as conn:
        client.enqueue_many([noop.call(n) for n in range(JOBS)])
        conn.execute("checkpoint")
        with workers(stage.dsn, 1, "--processes", str(processes), "--drain") as (parent,):
            while not client.depth("tasks").running:
                time.sleep(0.001)
            began = time.perf_counter()
            parent.wait()
            return JOBS / (time.perf_counter() - began)
