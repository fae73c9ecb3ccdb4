"""100,000 groups with one job each, against a queue without groups."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench.grouped import fill

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"ratio": ("≥", 0.5), "left_behind": ("≤", 0)}
JOBS = 100_000


def run(stage: Stage) -> dict[str, float]:
    with stage.connect() as conn:
        stage.fill(conn, JOBS)
        done, seconds = stage.drain(conn)
        plain = done / seconds
        began = time.perf_counter()
        fill(conn, (f"group {n}" for n in range(JOBS)))
        filling = time.perf_counter() - began
        done, seconds = stage.drain(conn)
        row = conn.execute("select (select count(*) from dibs.lane) + (select count(*) from dibs.turn)").fetchone()
    assert done == JOBS
    return {
        "plain_jobs_per_s": plain,
        "jobs_per_s": done / seconds,
        "enqueue_jobs_per_s": JOBS / filling,
        "ratio": done / seconds / plain,
        "left_behind": row[0] if row else -1,
    }
