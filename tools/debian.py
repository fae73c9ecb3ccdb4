"""Debian's packages, for what the tests run against: installed where that is allowed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def install(packages: list[str]) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        sys.exit(f"this needs Debian's packages {' '.join(packages)}; install them and run it again")
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
    # Tests in two processes may come here at once, and apt-get does not wait for another one.
    with (Path(tempfile.gettempdir()) / "dibs-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["apt-get", "update", "-qq"], **quiet)  # type: ignore[call-overload]
        command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
        subprocess.run(command, **quiet)  # type: ignore[call-overload]
