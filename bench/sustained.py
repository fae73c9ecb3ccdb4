"""Two workers and one enqueuer at once: does the backlog grow at 8,000 jobs a second?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import dibs
from bench.processes import wait_for_workers, workers

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"offered_per_s": ("≥", 7_900), "growth": ("≤", 8_000)}
RATE = 8_000
SECONDS = 60
BATCH = 400


def run(stage: Stage) -> dict[str, float]:
    backlogs: list[int] = []
    sent = 0
    with dibs.Client(stage.dsn) as client, workers(stage.dsn, 2):
        wait_for_workers(client, 2)
        began = time.monotonic()
        while (passed := time.monotonic() - began) < SECONDS:
            if sent > passed * RATE:
                time.sleep(0.005)
                continue
            client.enqueue_many(
                dibs.NewJob(queue="tasks", kind="noop", payload={"user_id": n}) for n in range(sent, sent + BATCH)
            )
            sent += BATCH
            if passed > 10 * (len(backlogs) + 1):
                backlogs.append(client.queues.depth("tasks").waiting)
        backlogs.append(client.queues.depth("tasks").waiting)
    # A second of work is no growth; the first ten seconds are for getting up to speed.
    return {
        "offered_per_s": sent / SECONDS,
        "growth": float(backlogs[-1] - backlogs[0]),
        "largest_backlog": float(max(backlogs)),
    }
