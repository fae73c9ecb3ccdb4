"""CPU time that `import dibs` adds to `import psycopg`, and that `dibs --help` takes.

Each is a fresh interpreter; they run in turns, so that a busy machine slows all of them. Bytecode is compiled before.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.stage import Stage

WANTED = {"import_ratio": ("≤", 0.3), "help_ratio": ("≤", 1.6)}
TURNS = 40
PROGRAMS = {
    "bare": ("-c", "pass"),
    "psycopg": ("-c", "import psycopg"),
    # The names that every application uses are touched: importing them later would only hide their cost.
    "dibs": ("-c", "import psycopg; import dibs; dibs.App; dibs.Client"),
    "help": ("-m", "dibs", "--help"),
}


def run(_: Stage) -> dict[str, float]:
    spent: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    with tempfile.TemporaryDirectory() as bytecode:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = bytecode
        for arguments in PROGRAMS.values():
            cpu_time(arguments, environment)
        for _turn in range(TURNS):
            for name, arguments in PROGRAMS.items():
                spent[name].append(cpu_time(arguments, environment))
    took = {name: median(times) for name, times in spent.items()}
    return {
        "import_ratio": (took["dibs"] - took["psycopg"]) / (took["psycopg"] - took["bare"]),
        "help_ratio": took["help"] / took["psycopg"],
    }


def cpu_time(arguments: tuple[str, ...], environment: Mapping[str, str]) -> float:
    """Return the CPU seconds of an interpreter, in user and system mode."""
    process = subprocess.Popen([sys.executable, *arguments], env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{arguments} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime
