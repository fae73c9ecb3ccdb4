"""The scenario `horizon` for a newest-first queue: rounds on an old backlog, in two halves, to make holes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.rounds import Rounds

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"ratio": ("≥", 0.8)}
ROUNDS = 10
JOBS = 10_000


def run(stage: Stage) -> dict[str, Any]:
    with stage.connect() as conn:
        conn.execute("select dibs.set_queue('q', '{\"newest_first\": true}')")
        stage.fill(conn, JOBS)
        rounds = Rounds(stage)
        with stage.pinned():
            for _ in range(ROUNDS):
                stage.fill(conn, JOBS // 2)
                half = stage.drain(conn, JOBS // 4)
                stage.fill(conn, JOBS // 2)
                rest = stage.drain(conn, JOBS - half[0])
                rounds.add(half[0] + rest[0], half[1] + rest[1])
    return rounds.measured()
