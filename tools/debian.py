"""Debian's packages, for what the tests run against: installed where that is allowed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys


def install(packages: list[str]) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        sys.exit(f"this needs Debian's packages {' '.join(packages)}; install them and run it again")
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
    subprocess.run(["apt-get", "update", "-qq"], **quiet)  # type: ignore[call-overload]
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    subprocess.run(command, **quiet)  # type: ignore[call-overload]
