"""Where a job's microseconds go, when a worker drains 30,000 no-op tasks: CPU of the server and of the worker.

The server's part is what pg_stat_statements saw in the two verbs. The worker's is its CPU time, divided among its
parts as cProfile saw them.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import time
from collections import Counter
from typing import TYPE_CHECKING

import dibs
from dibs.worker import Worker, WorkerSettings

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED: dict[str, tuple[str, float]] = {}
JOBS = 30_000
PARTS = {
    "psycopg": "worker_driver_us",
    "asyncio": "worker_event_loop_us",
    "selectors": "worker_event_loop_us",
    "dibs/worker": "worker_running_us",
    "dibs/client": "worker_running_us",
    "dibs/arguments": "worker_arguments_us",
    "dibs/job": "worker_arguments_us",
    "dibs/db": "worker_calls_us",
    "msgspec": "worker_arguments_us",
}


def run(stage: Stage) -> dict[str, float]:
    app = dibs.App(stage.dsn, queue="tasks")

    @app.task(name="noop")
    async def noop(user_id: int, lang: str = "en") -> None: ...

    def drain() -> float:
        app.client.enqueue_many([noop.call(n) for n in range(JOBS)])
        began = time.process_time()
        asyncio.run(Worker(app, WorkerSettings(("tasks",), drain=True, upkeep=False)).run())
        return (time.process_time() - began) / JOBS * 1e6

    drain()
    with stage.connect() as conn:
        conn.execute("select pg_stat_statements_reset()")
        plain = drain()
        server = {verb: stage.server_ms(conn, f"%dibs.{verb}%")[0] * 1000 / JOBS for verb in ("claim", "complete")}
    profile = cProfile.Profile()
    profile.enable()
    drain()
    profile.disable()
    app.close()
    shares = _shares(profile)
    return {
        "server_claim_us": server["claim"],
        "server_complete_us": server["complete"],
        "worker_us": plain,
        **{part: plain * share for part, share in shares.items()},
    }


def _shares(profile: cProfile.Profile) -> dict[str, float]:
    spent: Counter[str] = Counter()
    stats = pstats.Stats(profile)
    for (file, _, name), (_, _, own, _, _) in stats.stats.items():  # type: ignore[attr-defined]
        if "poll" in name and file == "~":
            continue
        where = file.replace("\\", "/") if file != "~" else name
        spent[next((part for path, part in PARTS.items() if path in where), "worker_other_us")] += own
    total = sum(spent.values())
    return {part: own / total for part, own in spent.most_common()}
