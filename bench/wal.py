"""The WAL of a whole life: enqueue, claim and complete, with a small payload and its history kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"bytes_per_job": ("≤", 1100)}
JOBS = 40_000


def run(stage: Stage) -> dict[str, float]:
    with stage.connect() as conn:
        stage.fill(conn, 20_000)
        stage.drain(conn)
        before = conn.execute("select pg_current_wal_insert_lsn()").fetchone()
        assert before
        stage.fill(conn, JOBS)
        done, _ = stage.drain(conn)
        wrote = conn.execute("select pg_current_wal_insert_lsn() - %s::pg_lsn", (before[0],)).fetchone()
        assert wrote
    return {"bytes_per_job": float(wrote[0]) / done}
