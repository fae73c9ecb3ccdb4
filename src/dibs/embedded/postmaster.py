"""Facts about the postmaster of a data folder, and how to end it.

Run alone, this file is the guard of a temporary server: it waits for the end of its standard input,
which its owner holds open and never writes to, and then ends the server and removes its folder. So
it may import nothing but the standard library.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

PORT = 5432
PID_FILE = "postmaster.pid"
NO_SUCH_PID = 2**22 + 1
"""Above the highest process id of any system PostgreSQL runs on."""
POLL = 0.02
START_SLACK = 5.0
"""Seconds between the start of a process and the time that it writes as its start, at most."""


@dataclass(frozen=True)
class Postmaster:
    """The facts that a living postmaster writes about itself."""

    pid: int
    started: int
    socket_dir: Path | None
    ready: bool


def find(data_dir: Path) -> Postmaster | None:
    """Find the postmaster that is alive and serves this folder."""
    lines = _lines(data_dir)
    if len(lines) < 3 or not lines[0].isdigit() or not _serves(int(lines[0]), data_dir):
        return None
    lines += [""] * (8 - len(lines))
    return Postmaster(
        pid=int(lines[0]),
        started=int(lines[2]),
        socket_dir=Path(lines[4]) if lines[4] else None,
        ready=lines[7].strip() == "ready",
    )


def end(data_dir: Path, how: signal.Signals, timeout: float) -> bool:
    """Send the signal and wait. True if no postmaster is left."""
    found = find(data_dir)
    if found is None:
        return True
    try:
        os.kill(found.pid, how)
    except ProcessLookupError:
        return True
    until = time.monotonic() + timeout
    while _serves(found.pid, data_dir):
        if time.monotonic() > until:
            return False
        time.sleep(POLL)
    return True


def forget(data_dir: Path, socket_dir: Path) -> None:
    """Defuse what a killed postmaster left, so that a reused process id does not stop the next one.

    Call it only under the folder's lock, and only when ``find`` finds no postmaster. The other lines of
    the file stay: they let PostgreSQL refuse to start while orphaned backends hold the shared memory.
    """
    (socket_dir / f".s.PGSQL.{PORT}.lock").unlink(missing_ok=True)
    lines = _lines(data_dir)
    if len(lines) < 2:
        (data_dir / PID_FILE).unlink(missing_ok=True)
        return
    pid_file = os.open(data_dir / PID_FILE, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
    with os.fdopen(pid_file, "w") as file:
        file.write("\n".join([str(NO_SUCH_PID), *lines[1:]]) + "\n")


def _lines(data_dir: Path) -> list[str]:
    try:
        return (data_dir / PID_FILE).read_text().splitlines()
    except FileNotFoundError:
        return []


def _serves(pid: int, data_dir: Path) -> bool:
    """True if the process serves this folder: the pid alone may belong to another process by now, or to a zombie."""
    try:
        return _working_folder(pid) == os.path.realpath(data_dir)
    except PermissionError:
        # In a container, root without CAP_SYS_PTRACE may not read this of the account that the server runs as.
        return _started_when_recorded(pid, data_dir)
    except OSError:
        return False


def _started_when_recorded(pid: int, data_dir: Path) -> bool:
    """True if the process lives, and started at the time that the pid file says."""
    try:
        # After the name in brackets: the state, and as the 20th field the start in ticks since the boot.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        recorded = int(_lines(data_dir)[2])
    except (OSError, StopIteration, IndexError, ValueError):
        return False
    started = int(boot.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return fields[0] != "Z" and abs(started - recorded) < START_SLACK


def _working_folder(pid: int) -> str:
    if sys.platform == "linux":
        return str(Path(f"/proc/{pid}/cwd").readlink())
    lsof = ["lsof", "-a", "-p", str(pid), "-d", "cwd", "-Fn"]
    shown = subprocess.run(lsof, capture_output=True, text=True, check=False)
    return next((line[1:] for line in shown.stdout.splitlines() if line.startswith("n")), "")


def _guard(folder: Path) -> None:
    sys.stdin.buffer.read()
    until = time.monotonic() + 60
    # Repeat: an orphaned initdb or pg_ctl of the owner may still be making files.
    while folder.exists() and time.monotonic() < until:
        if not end(folder / "data", signal.SIGQUIT, timeout=10):
            end(folder / "data", signal.SIGKILL, timeout=10)
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(POLL)


if __name__ == "__main__":
    _guard(Path(sys.argv[1]))
