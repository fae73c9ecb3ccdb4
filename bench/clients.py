"""Many clients at once, each of which runs a script again and again: pgbench."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from psycopg.conninfo import make_conninfo

from dibs.embedded import find_binaries

if TYPE_CHECKING:
    from bench.stage import Stage


def rate(stage: Stage, script: str, *, clients: int, seconds: int, durable: bool = True) -> float:
    """Return how often per second the clients together ran the script, with prepared statements."""
    program = (stage.binaries or find_binaries())["pgbench"]
    dsn = stage.dsn if durable else make_conninfo(stage.dsn, options="-c synchronous_commit=off")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "script.sql"
        file.write_text(script)
        done = subprocess.run(
            [program, "-n", "-M", "prepared", "-c", str(clients), "-j", "2", "-T", str(seconds), "-f", file, dsn],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    found = re.search(r"tps = ([\d.]+)", done.stdout)
    assert found, done.stdout
    return float(found[1])
