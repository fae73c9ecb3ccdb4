"""8 producers and one worker at the same time: from commit to claim."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import dibs
from bench.stage import percentile

if TYPE_CHECKING:
    from uuid import UUID

    from bench.stage import Stage

WANTED = {"p99_ms": ("≤", 50)}
PRODUCERS = 8
SECONDS = 10
PAUSE = 0.02


def run(stage: Stage) -> dict[str, float]:
    sent: dict[UUID, float] = {}
    claimed: dict[UUID, float] = {}
    stop = threading.Event()
    with dibs.Client(stage.dsn, pool_size=PRODUCERS) as producer, dibs.Client(stage.dsn) as worker:

        def produce() -> None:
            while not stop.is_set():
                made = producer.enqueue("q", "k", {"n": 1})
                sent[made.id] = time.perf_counter()
                stop.wait(PAUSE)

        def work() -> None:
            while not stop.is_set() or len(claimed) < len(sent):
                jobs = worker.claim("q", 100, wait=0.5)
                now = time.perf_counter()
                claimed.update((job.id, now) for job in jobs)
                if jobs:
                    worker.complete_many(jobs)

        threads = [threading.Thread(target=t) for t in [work, *[produce] * PRODUCERS]]
        for thread in threads:
            thread.start()
        time.sleep(SECONDS)
        stop.set()
        for thread in threads:
            thread.join(30)
    waits = [max(0.0, claimed[id] - sent[id]) * 1000 for id in sent]
    return {
        "jobs_per_s": len(waits) / SECONDS,
        "p50_ms": percentile(waits, 0.5),
        "p99_ms": percentile(waits, 0.99),
        "max_ms": max(waits),
    }
