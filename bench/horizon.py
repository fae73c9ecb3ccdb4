"""Ten rounds of enqueue 20,000 and drain 20,000 while a transaction holds the horizon back.

Then rounds with heartbeats, failures and retries, each of which plans again, on tables vacuumed while they were empty.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from bench.stage import BATCH

if TYPE_CHECKING:
    import psycopg

    from bench.stage import Stage

WANTED = {"ratio": ("≥", 0.8), "busy_ratio": ("≥", 0.8)}
ROUNDS = 10
JOBS = 20_000
BUSY_ROUNDS = 6
BUSY_JOBS = 5_000


def run(stage: Stage) -> dict[str, Any]:
    with stage.connect() as conn:
        stage.fill(conn, 2_000)
        stage.drain(conn)
        holder = stage.pinned()
        rounds = []
        for _ in range(ROUNDS):
            stage.fill(conn, JOBS)
            done, seconds = stage.drain(conn)
            rounds.append(round(done / seconds))
        busy = [busy_round(stage) for _ in range(BUSY_ROUNDS)]
        holder.close()
    return {
        "rounds": rounds, "first": rounds[0], "last": rounds[-1], "ratio": rounds[-1] / rounds[0],
        "busy": busy, "busy_first": busy[0], "busy_last": busy[-1], "busy_ratio": busy[-1] / busy[0],
    }  # fmt: skip


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
