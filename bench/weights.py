"""Groups of weight 1, 2 and 4 with a backlog each, four claimers: the shares they get."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from bench.grouped import fill, serve

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"worst_error": ("≤", 0.05), "worst_error_singly": ("≤", 0.05)}
WEIGHTS = {"a": 1, "b": 2, "c": 4}
JOBS = 10_000
SINGLY = 2_000


def run(stage: Stage) -> dict[str, float]:
    with stage.connect() as conn:
        for name, weight in WEIGHTS.items():
            conn.execute("select dibs.set_group('q', %s, jsonb_build_object('weight', %s::integer))", (name, weight))
            fill(conn, [name] * JOBS, batch=1000)
    shares = _shares(stage, 50, JOBS)
    return {
        **{f"share_{name}": share for name, share in shares.items()},
        "worst_error": _worst(shares),
        "worst_error_singly": _worst(_shares(stage, 1, SINGLY)),
    }


def _shares(stage: Stage, batch: int, jobs: int) -> dict[str, float]:
    served, _ = serve(stage, 4, batch, lambda s: len(s) >= jobs)
    counts = Counter(served[:jobs])
    return {name: counts[name] / jobs for name in WEIGHTS}


def _worst(shares: dict[str, float]) -> float:
    return max(abs(shares[name] * 7 / weight - 1) for name, weight in WEIGHTS.items())
