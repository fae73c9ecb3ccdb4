"""Enqueueing from Python: one by one, and in bulk.

One by one, durably, over one connection, in turns with a bare insert of one row. In bulk as a list of jobs, and as a
million calls of a task with typed arguments that an iterator makes, with the memory this takes.
"""

from __future__ import annotations

import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median
from typing import TYPE_CHECKING

import dibs

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.stage import Stage

WANTED = {
    "one_ratio": ("≥", 0.75),
    "many_per_s": ("≥", 40_000),
    "typed_per_s": ("≥", 70_000),
    "typed_memory_mb": ("≤", 200),
}
ONE = 500
TURNS = 6
MANY = 200_000
TYPED = 1_000_000
BARE = "insert into bare (id, kind, payload) values (gen_random_uuid(), 'k', %s::jsonb)"


def run(stage: Stage) -> dict[str, float]:
    return {**_one_by_one(stage), **_in_bulk(stage), **_typed(stage)}


def _one_by_one(stage: Stage) -> dict[str, float]:
    with dibs.Client(stage.dsn) as client, stage.connect() as conn:
        conn.execute("create table bare (id uuid primary key, kind text, payload jsonb)")

        def insert() -> None:
            conn.execute(BARE, ('{"user_id": 1, "lang": "en"}',))

        def enqueue() -> None:
            client.enqueue("one", "k", {"user_id": 1, "lang": "en"})

        rates: dict[Callable[[], None], list[float]] = {enqueue: [], insert: []}
        for _ in range(TURNS):
            for do, measured in rates.items():
                measured.append(_rate(do))
    one, bare = median(rates[enqueue][1:]), median(rates[insert][1:])
    return {"one_per_s": one, "bare_per_s": bare, "one_ratio": one / bare}


def _rate(do: Callable[[], None]) -> float:
    began = time.perf_counter()
    for _ in range(ONE):
        do()
    return ONE / (time.perf_counter() - began)


def _in_bulk(stage: Stage) -> dict[str, float]:
    jobs = [dibs.NewJob(queue="many", kind="k", payload={"user_id": n, "lang": "en"}) for n in range(MANY)]
    with dibs.Client(stage.dsn) as client:
        client.enqueue_many(jobs[:5000])
        began = time.perf_counter()
        made = client.enqueue_many(jobs)
        return {"many_per_s": len(made) / (time.perf_counter() - began)}


def _typed(stage: Stage) -> dict[str, float]:
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        rate, memory = process.submit(_enqueue_typed, stage.dsn).result()
    return {"typed_per_s": rate, "typed_memory_mb": memory}


def _enqueue_typed(dsn: str) -> tuple[float, float]:
    """Return the calls per second, and the peak memory of this process."""
    app = dibs.App(dsn, queue="tasks")

    @app.task(name="noop")
    async def noop(user_id: int, lang: str = "en") -> None: ...

    noop.enqueue_many(noop.call(n) for n in range(5000))
    began = time.perf_counter()
    made = noop.enqueue_many(noop.call(n) for n in range(TYPED))
    took = time.perf_counter() - began
    app.close()
    return len(made) / took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
