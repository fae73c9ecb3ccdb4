"""Ten rounds of enqueue 20,000 and drain 20,000 while a transaction holds the horizon back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"ratio": ("≥", 0.8)}
ROUNDS = 10
JOBS = 20_000


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
        holder.close()
    return {"rounds": rounds, "first": rounds[0], "last": rounds[-1], "ratio": rounds[-1] / rounds[0]}
