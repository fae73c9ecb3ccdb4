"""One group with 100,000 jobs and 100 with 10 each, four claimers: how much of the big one goes first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.grouped import fill, serve

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"big_before_small_done": ("≤", 3_000)}
BIG = 100_000
SMALL = 100
EACH = 10


def run(stage: Stage) -> dict[str, float]:
    with stage.connect() as conn:
        fill(conn, ["big"] * BIG, batch=1000)
        fill(conn, [f"small{n}" for n in range(SMALL)] * EACH)
    wanted = SMALL * EACH
    served, seconds = serve(stage, 4, 20, lambda s: len(s) - s.count("big") >= wanted)
    last_small = max(i for i, group in enumerate(served) if group != "big")
    return {
        "big_before_small_done": served[:last_small].count("big"),
        "small_done": len(served) - served.count("big"),
        "jobs_per_s": len(served) / seconds,
    }
