"""The time from the commit of an enqueue until a waiting receive returns its job."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

import dibs
from bench.stage import percentile

if TYPE_CHECKING:
    from uuid import UUID

    from bench.stage import Stage

WANTED = {"p50_ms": ("≤", 5), "p99_ms": ("≤", 50)}
JOBS = 500


def run(stage: Stage) -> dict[str, float]:
    sent: dict[UUID, float] = {}
    received: dict[UUID, float] = {}
    with dibs.Client(stage.dsn) as producer, dibs.Client(stage.dsn) as consumer:
        queue = consumer.message_queue("q")
        producer.enqueue("q", "k")
        queue.receive(wait=5)[0].ack()

        def receive() -> None:
            while len(received) < JOBS:
                for message in queue.receive(10, wait=5):
                    received[message.id] = time.perf_counter()
                    message.ack()

        thread = threading.Thread(target=receive)
        thread.start()
        for n in range(JOBS):
            made = producer.enqueue("q", "k", {"n": n})
            sent[made.id] = time.perf_counter()
            time.sleep(random.uniform(0.01, 0.04))
        thread.join(30)
    waits = [max(0.0, received[id] - sent[id]) * 1000 for id in sent]
    return {"p50_ms": percentile(waits, 0.5), "p99_ms": percentile(waits, 0.99), "max_ms": max(waits)}
