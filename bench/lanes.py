"""100,000 groups with one job each, and a queue without groups: drained in turns, so that both see the same machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.grouped import fill

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"ratio": ("≥", 0.5), "left_behind": ("≤", 0)}
JOBS = 100_000
PART = 5_000


def run(stage: Stage) -> dict[str, float]:
    spent = {"plain": 0.0, "grouped": 0.0}
    done = dict.fromkeys(spent, 0)
    with stage.connect() as conn:
        stage.fill(conn, JOBS, queue="plain")
        began = time.perf_counter()
        fill(conn, (f"group {n}" for n in range(JOBS)), queue="grouped")
        filling = time.perf_counter() - began
        while done["grouped"] < JOBS:
            for queue in spent:
                jobs, seconds = stage.drain(conn, PART, queue)
                done[queue] += jobs
                spent[queue] += seconds
        stage.drain(conn, queue="grouped")
        row = conn.execute(
            "select (select count(*) from dibs.group_gate) + (select count(*) from dibs.group_pointer)"
        ).fetchone()
    plain, grouped = (done[queue] / spent[queue] for queue in spent)
    return {
        "plain_jobs_per_s": plain,
        "jobs_per_s": grouped,
        "enqueue_jobs_per_s": JOBS / filling,
        "ratio": grouped / plain,
        "left_behind": row[0] if row else -1,
    }
