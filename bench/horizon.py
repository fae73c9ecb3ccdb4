"""Twenty rounds of enqueue 20,000 and drain 20,000 while a transaction holds the horizon back.

Then rounds with heartbeats, failures and retries, each of which plans again, on tables vacuumed while they were empty.
Five such runs in a row, with autovacuum on: a plan that flips, or a scan over dead rows, shows in the worst of them.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.stage import BATCH

if TYPE_CHECKING:
    import psycopg

    from bench.stage import Stage

WANTED = {"ratio": ("≥", 0.85), "busy_ratio": ("≥", 0.85)}
RUNS = 5
ROUNDS = 20
JOBS = 20_000
BUSY_JOBS = 2_500


def run(stage: Stage) -> dict[str, Any]:
    with stage.connect() as conn:
        stage.fill(conn, 2_000)
        stage.drain(conn)
        runs = [one_run(stage, conn) for _ in range(RUNS)]
    rounds, busy = (min((run[n] for run in runs), key=last_to_first) for n in (0, 1))
    return {
        "rounds": rounds, "first": rounds[0], "last": rounds[-1], "ratio": last_to_first(rounds),
        "ratios": [round(last_to_first(run[0]), 3) for run in runs],
        "busy": busy, "busy_first": busy[0], "busy_last": busy[-1], "busy_ratio": last_to_first(busy),
        "busy_ratios": [round(last_to_first(run[1]), 3) for run in runs],
    }  # fmt: skip


def last_to_first(rounds: list[int]) -> float:
    """How fast the last quarter of the rounds is as a part of how fast the first is, by medians: machines are noisy."""
    some = max(len(rounds) // 4, 1)
    return median(rounds[-some:]) / median(rounds[:some])


def one_run(stage: Stage, conn: psycopg.Connection[Any]) -> tuple[list[int], list[int]]:
    """Jobs per second of each round."""
    with stage.pinned():
        rounds = []
        for _ in range(ROUNDS):
            stage.fill(conn, JOBS)
            done, seconds = stage.drain(conn)
            rounds.append(round(done / seconds))
        return rounds, [busy_round(stage) for _ in range(ROUNDS)]


def busy_round(stage: Stage) -> int:
    """Runs per second; every run has a heartbeat, and a fifth of the first ones fail and are tried again."""
    with stage.connect() as conn:
        conn.execute("vacuum (analyze) dibs.ready, dibs.lease")
        stage.fill(conn, BUSY_JOBS)
        began, runs = time.perf_counter(), 0
        while count := work(conn):
            runs += count
        return round(runs / (time.perf_counter() - began))


def work(conn: psycopg.Connection[Any]) -> int:
    """Claim a batch, renew it, fail some of it and complete the rest; how many there were."""
    rows = conn.execute("select id, token, attempt from dibs.claim('{q}', %s)", (BATCH,)).fetchall()
    bad = [row for n, row in enumerate(rows) if n % 5 == 0 and row[2] == 1]
    good = [row for row in rows if row not in bad]
    for verb, these in (
        ("select count(*) from dibs.extend_many(%s, %s)", rows),
        ("select count(*) from dibs.fail_many(%s, %s, delays => array_fill(interval '0', array[%s]))", bad),
        ("select count(*) from dibs.complete_many(%s, %s)", good),
    ):
        if these:
            given = [[row[0] for row in these], [row[1] for row in these], len(these)]
            conn.execute(verb, given[: verb.count("%s")])
    return len(rows)
