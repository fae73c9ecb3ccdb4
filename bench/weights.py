"""Groups of weight 1, 2 and 4 with a backlog each, four claimers: the shares they get."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from bench.grouped import fill, serve

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"worst_error": ("≤", 0.1)}
WEIGHTS = {"a": 1, "b": 2, "c": 4}
JOBS = 10_000


def run(stage: Stage) -> dict[str, float]:
    with stage.connect() as conn:
        for name, weight in WEIGHTS.items():
            conn.execute("select dibs.set_group('q', %s, jsonb_build_object('weight', %s::integer))", (name, weight))
            fill(conn, [name] * JOBS, batch=1000)
    served, _ = serve(stage, 4, 50, lambda s: len(s) >= JOBS)
    counts = Counter(served[:JOBS])
    shares = {name: counts[name] / JOBS for name in WEIGHTS}
    errors = [abs(shares[name] * 7 / weight - 1) for name, weight in WEIGHTS.items()]
    return {**{f"share_{name}": share for name, share in shares.items()}, "worst_error": max(errors)}
