"""Enqueueing from Python: one by one over one connection, and in bulk with ids known to the caller."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import dibs

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"many_per_s": ("≥", 40_000)}
ONE = 3_000
MANY = 200_000


def run(stage: Stage) -> dict[str, float]:
    with dibs.Client(stage.dsn) as client:
        for n in range(200):
            client.enqueue("one", "k", {"user_id": n, "lang": "en"})
        began = time.perf_counter()
        for n in range(ONE):
            client.enqueue("one", "k", {"user_id": n, "lang": "en"})
        one = ONE / (time.perf_counter() - began)
        jobs = [dibs.NewJob(queue="many", kind="k", payload={"user_id": n, "lang": "en"}) for n in range(MANY)]
        client.enqueue_many(jobs[:5000])
        began = time.perf_counter()
        made = client.enqueue_many(jobs)
        many = len(made) / (time.perf_counter() - began)
    return {"one_per_s": one, "many_per_s": many}
