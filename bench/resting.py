"""The cost of an idle worker: its share of a core, and the server's."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import dibs
from bench.processes import cpu_seconds, wait_for_workers, workers

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"core_percent": ("≤", 1)}
SECONDS = 30


def run(stage: Stage) -> dict[str, float]:
    with dibs.Client(stage.dsn) as client, stage.connect() as conn, workers(stage.dsn, 1) as (worker,):
        wait_for_workers(client, 1)
        time.sleep(5)
        conn.execute("select pg_stat_statements_reset()")
        before = cpu_seconds(worker.pid)
        time.sleep(SECONDS)
        used = cpu_seconds(worker.pid) - before
        spent, _ = stage.server_ms(conn, "%dibs.%")
    return {"core_percent": used / SECONDS * 100, "server_percent": spent / 1000 / SECONDS * 100}
