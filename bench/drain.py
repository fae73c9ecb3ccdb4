"""One worker process runs 50,000 no-op tasks already enqueued, compared with the bare SQL loop in the same run."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import dibs
from dibs.worker import Worker, WorkerSettings

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"jobs_per_s": ("≥", 50_000), "ratio": ("≥", 0.8)}
JOBS = 50_000


def run(stage: Stage) -> dict[str, float]:
    app = dibs.App(stage.dsn, queue="tasks")

    @app.task(name="noop")
    async def noop(user_id: int, lang: str = "en") -> None: ...

    with stage.connect() as conn:
        stage.fill(conn, JOBS)
        done, seconds = stage.drain(conn)
    app.client.enqueue_many([noop.call(n) for n in range(JOBS)])
    worker = Worker(app, WorkerSettings(("tasks",), drain=True))
    began = time.perf_counter()
    asyncio.run(worker.run())
    jobs_per_s = worker.ended / (time.perf_counter() - began)
    app.close()
    return {"jobs_per_s": jobs_per_s, "sql_jobs_per_s": done / seconds, "ratio": jobs_per_s * seconds / done}
