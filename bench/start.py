"""The time from the commit of an enqueue until an idle worker calls its handler."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import dibs
from bench.processes import wait_for_workers, workers
from bench.stage import percentile

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"p50_ms": ("≤", 1), "p99_ms": ("≤", 4)}
JOBS = 500


def run(stage: Stage) -> dict[str, float]:
    sent = {}
    with dibs.Client(stage.dsn) as client, workers(stage.dsn, 1):
        wait_for_workers(client, 1)
        client.message_queue("tasks")
        for _ in range(JOBS):
            made = client.enqueue("tasks", "stamp", {})
            sent[made.id] = time.monotonic()
            time.sleep(random.uniform(0.01, 0.04))
        while client.queues.depth("tasks").waiting + client.queues.depth("tasks").running:
            time.sleep(0.05)
        began = {id: (client.show(id) or {})["attempts"][0]["result"] for id in sent}
    waits = [max(0.0, began[id] - at) * 1000 for id, at in sent.items()]
    return {"p50_ms": percentile(waits, 0.5), "p99_ms": percentile(waits, 0.99), "max_ms": max(waits)}
