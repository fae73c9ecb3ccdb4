"""Prints the folder of Debian's PostgreSQL 15 programs, installing what is missing where that is allowed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

BIN = Path("/usr/lib/postgresql/15/bin")
CHECKER = Path("/usr/lib/postgresql/15/lib/plpgsql_check.so")


def missing() -> list[str]:
    packages = [] if (BIN / "postgres").exists() else ["postgresql-15"]
    if "--plpgsql-check" in sys.argv and not CHECKER.exists():
        packages.append("postgresql-15-plpgsql-check")
    return packages


def install(packages: list[str]) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        sys.exit(f"this needs Debian's packages {' '.join(packages)}; install them and run it again")
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
    subprocess.run(["apt-get", "update", "-qq"], **quiet)  # type: ignore[call-overload]
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    subprocess.run(command, **quiet)  # type: ignore[call-overload]


if packages := missing():
    install(packages)
print(BIN)
