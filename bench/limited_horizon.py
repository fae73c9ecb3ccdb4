"""Limits while the horizon is held back: rounds of jobs through a limit of their queue, and one of their kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.rounds import Rounds

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"queue_ratio": ("≥", 0.85), "kind_ratio": ("≥", 0.85)}
JOBS = 6_000
ROUNDS = 8
LIMITS = {
    "queue": "select dibs.set_limit(queue => 'queue', concurrency => 20)",
    "kind": "select dibs.set_limit(kind => 'kind', concurrency => 20)",
}


def run(stage: Stage) -> dict[str, Any]:
    measured: dict[str, Any] = {}
    with stage.connect() as conn:
        for sort, statement in LIMITS.items():
            conn.execute(statement)
            stage.fill(conn, JOBS, queue=sort, kind=sort)
            stage.drain(conn, queue=sort)
            rounds = Rounds(stage)
            with stage.pinned():
                for _ in range(ROUNDS):
                    stage.fill(conn, JOBS, queue=sort, kind=sort)
                    rounds.add(*stage.drain(conn, queue=sort))
            measured |= rounds.measured(f"{sort}_")
    return measured
