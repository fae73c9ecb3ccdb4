"""150,000 jobs due at the same instant while a transaction holds the horizon back: the last drain as fast as the first."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"ratio": ("≥", 0.8)}
PART = 50_000


def run(stage: Stage) -> dict[str, float]:
    with stage.connect() as conn:
        stage.fill(conn, 2_000)
        stage.drain(conn)
        due = datetime.now(UTC).isoformat()
        conn.execute("select pg_sleep(0.01)")
        # Clamped to now otherwise: jobs of one instant are jobs of one statement.
        conn.execute(
            "select count(*) from dibs.enqueue_many((select jsonb_agg(jsonb_build_object('queue', 'q', 'kind', 'k',"
            " 'payload', jsonb_build_object('user_id', n, 'lang', 'en', 'asked', %s::text))) from generate_series(1, %s) as n))",
            (due, 3 * PART),
        )
        holder = stage.pinned()
        rates = []
        for _ in range(3):
            done, seconds = stage.drain(conn, PART)
            rates.append(done / seconds)
        holder.close()
    return {"first": rates[0], "last": rates[-1], "ratio": rates[-1] / rates[0]}
