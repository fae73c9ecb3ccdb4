"""CPU time per job: of the server, of the producer, and of a worker that drains 30,000 no-op tasks.

The server's part is what pg_stat_statements saw in the two verbs. The worker's is its CPU time, divided among its
parts as cProfile saw them.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import dibs
from dibs.db.calls.encoder import encode
from dibs.db.calls.jobs import enqueue_many
from dibs.ids import IdMaker
from dibs.worker import Worker, WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.stage import Stage
    from dibs.client.task import Task

WANTED: dict[str, tuple[str, float]] = {}
JOBS = 30_000
ONE = 5_000
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
    enqueueing = _enqueueing(stage, app, noop)
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
        **enqueueing,
        "server_claim_us": server["claim"],
        "server_complete_us": server["complete"],
        "worker_us": plain,
        **{part: plain * share for part, share in shares.items()},
    }


def _enqueueing(stage: Stage, app: dibs.App, task: Task[[int, str], Any]) -> dict[str, float]:
    """One enqueue after another, and the steps of many at once, for each job."""
    jobs = [task.call(n, "en") for n in range(ONE)]
    parts = [encode(job) for job in jobs]
    ids = [id.hex for id in IdMaker().make(ONE)]
    with stage.connect() as conn:
        conn.execute("select pg_stat_statements_reset()")
        one = _cpu(lambda: [app.client.enqueue("tasks", "noop", {"user_id": n}) for n in range(ONE)])
        many = _cpu(lambda: task.enqueue_many(jobs))
        server = [stage.server_ms(conn, f"%dibs.{verb}(%")[0] * 1000 / ONE for verb in ("enqueue", "enqueue_many")]
    return {
        "server_enqueue_one_us": server[0],
        "producer_enqueue_one_us": one,
        "server_enqueue_many_us": server[1],
        "producer_enqueue_many_us": many,
        "producer_call_us": _cpu(lambda: [task.call(n, "en") for n in range(ONE)]),
        "producer_encode_us": _cpu(lambda: [encode(job) for job in jobs]),
        "producer_ids_us": _cpu(lambda: IdMaker().make_bytes(ONE)),
        "producer_join_us": _cpu(lambda: enqueue_many(parts, ids, None, fresh=True)),
    }


def _cpu(do: Callable[[], object]) -> float:
    began = time.process_time()
    do()
    return (time.process_time() - began) / ONE * 1e6


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
