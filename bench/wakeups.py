"""16 clients enqueueing one by one, with the bell on and off, in turns, while one connection listens."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from dibs.embedded import find_binaries

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
        pgbench(stage, "off", 1)
        for turn in range(TURNS):
            for queue in ("on", "off") if turn % 2 else ("off", "on"):
                rates[queue].append(pgbench(stage, queue, SECONDS))
    on, off = median(rates["on"]), median(rates["off"])
    return {"on_per_s": on, "off_per_s": off, "ratio": on / off}


def pgbench(stage: Stage, queue: str, seconds: int) -> float:
    program = (stage.binaries or find_binaries())["pgbench"]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "enqueue.sql"
        script.write_text(f"select dibs.enqueue('{queue}', 'k', '{{\"user_id\": 1}}');\n")
        done = subprocess.run(
            [program, "-n", "-M", "prepared", "-c", str(CLIENTS), "-j", "2", "-T", str(seconds), "-f", script,
             stage.dsn],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    found = re.search(r"tps = ([\d.]+)", done.stdout)
    assert found, done.stdout
    return float(found[1])
