"""Claim and complete at the SQL level, in batches of 200 over one connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"jobs_per_s": ("≥", 30_000), "enqueue_jobs_per_s": ("≥", 40_000), "ratio": ("≤", 2)}
JOBS = 100_000


def run(stage: Stage) -> dict[str, float]:
    with stage.connect() as conn:
        stage.fill(conn, 10_000)
        stage.drain(conn)
        conn.execute("select pg_stat_statements_reset()")
        filling = stage.fill(conn, JOBS)
        done, draining = stage.drain(conn)
        enqueue, _ = stage.server_ms(conn, "%enqueue_many%")
        claim, _ = stage.server_ms(conn, "%dibs.claim%")
        complete, _ = stage.server_ms(conn, "%complete_many%")
    return {
        "jobs_per_s": done / draining,
        "server_us_per_job": (claim + complete) * 1000 / done,
        "claim_server_us_per_job": claim * 1000 / done,
        "complete_server_us_per_job": complete * 1000 / done,
        "enqueue_server_us_per_job": enqueue * 1000 / JOBS,
        "enqueue_jobs_per_s": JOBS / filling,
        "ratio": (claim + complete) / enqueue,
    }
