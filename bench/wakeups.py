"""16 clients enqueueing one by one, with the bell on and off, in turns, while one connection listens."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from bench.clients import rate

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"ratio": ("≥", 0.85)}
CLIENTS = 16
SECONDS = 4
TURNS = 4


def run(stage: Stage) -> dict[str, float]:
    rates: dict[str, list[float]] = {"on": [], "off": []}
    with stage.connect() as conn, stage.connect() as listener:
        listener.execute("listen dibs")
        conn.execute("select dibs.set_queue('on'), dibs.set_queue('off', '{\"ring\": false}')")
        _rate(stage, "off", 1)
        for turn in range(TURNS):
            for queue in ("on", "off") if turn % 2 else ("off", "on"):
                rates[queue].append(_rate(stage, queue, SECONDS))
    on, off = median(rates["on"]), median(rates["off"])
    return {"on_per_s": on, "off_per_s": off, "ratio": on / off}


def _rate(stage: Stage, queue: str, seconds: int) -> float:
    script = f"select dibs.enqueue('{queue}', 'k', '{{\"user_id\": 1}}');\n"
    return rate(stage, script, clients=CLIENTS, seconds=seconds)
