"""Twenty rounds of enqueue 20,000 and drain 20,000 while a transaction holds the horizon back.

Then rounds with heartbeats, failures and retries, each of which plans again, on tables vacuumed while they were empty.
Five such runs in a row, with autovacuum on: a plan that flips, or a scan over dead rows, shows in the worst of them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from bench.rounds import Rounds
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
    return {**_worst("", [plain for plain, _ in runs]), **_worst("busy_", [busy for _, busy in runs])}


def _worst(sort: str, runs: list[Rounds]) -> dict[str, Any]:
    """The worst run by the clock, the worst by blocks, and all of them in a row."""
    return {
        **min(runs, key=lambda run: run.ratio).measured(sort),
        f"{sort}ratios": [round(run.ratio, 3) for run in runs],
        f"{sort}blocks_ratio": min(run.blocks_ratio for run in runs),
        f"{sort}blocks_ratios": [round(run.blocks_ratio, 3) for run in runs],
    }


def one_run(stage: Stage, conn: psycopg.Connection[Any]) -> tuple[Rounds, Rounds]:
    """Plain rounds, and busy ones."""
    plain, busy = Rounds(stage), Rounds(stage)
    with stage.pinned():
        for _ in range(ROUNDS):
            stage.fill(conn, JOBS)
            plain.add(*stage.drain(conn))
        for _ in range(ROUNDS):
            busy.add(*busy_round(stage))
    return plain, busy


def busy_round(stage: Stage) -> tuple[int, float]:
    """Return runs and seconds; each run has a heartbeat, and a fifth of the first ones fail and are tried again."""
    with stage.connect() as conn:
        conn.execute("vacuum (analyze) dibs.ready, dibs.lease")
        stage.fill(conn, BUSY_JOBS)
        began, runs = time.perf_counter(), 0
        while count := work(conn):
            runs += count
        return runs, time.perf_counter() - began


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
