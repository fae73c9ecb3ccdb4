"""Ten rounds of 20,000 jobs in 100 groups, while a transaction holds the horizon back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.grouped import fill
from bench.rounds import Rounds

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"ratio": ("≥", 0.85)}
ROUNDS = 10
JOBS = 20_000
GROUPS = 100


def run(stage: Stage) -> dict[str, Any]:
    names = [f"group {n % GROUPS}" for n in range(JOBS)]
    with stage.connect() as conn:
        fill(conn, names[:2000])
        stage.drain(conn)
        rounds = Rounds(stage)
        with stage.pinned():
            for _ in range(ROUNDS):
                fill(conn, names)
                rounds.add(*stage.drain(conn))
    return rounds.measured()
