"""99,000 jobs due at the same instant, with the horizon held back: the last are drained as fast as the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.rounds import Rounds
from bench.stage import script

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"ratio": ("≥", 0.85)}
PART = 33_000  # A statement takes at most 100,000 jobs.


def run(stage: Stage) -> dict[str, Any]:
    with stage.connect() as conn:
        stage.fill(conn, 2_000)
        stage.drain(conn)
        # A due time in the past is clamped to now, so jobs of one instant are jobs of one statement.
        job = "jsonb_build_object('queue', 'q', 'kind', 'k', 'payload', jsonb_build_object('user_id', n, 'lang', 'en'))"
        jobs = f"(select jsonb_agg({job}) from generate_series(1, {3 * PART}) as n)"
        conn.execute(script(f"select count(*) from dibs.enqueue_many({jobs})"))
        rounds = Rounds(stage)
        with stage.pinned():
            for _ in range(3):
                rounds.add(*stage.drain(conn, PART))
    return rounds.measured()
