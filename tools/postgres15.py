"""Prints the folder of Debian's PostgreSQL 15 programs, installing what is missing where that is allowed."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.debian import install

BIN = Path("/usr/lib/postgresql/15/bin")
CHECKER = Path("/usr/lib/postgresql/15/lib/plpgsql_check.so")


def missing() -> list[str]:
    packages = [] if (BIN / "postgres").exists() else ["postgresql-15"]
    if "--plpgsql-check" in sys.argv and not CHECKER.exists():
        packages.append("postgresql-15-plpgsql-check")
    return packages


if packages := missing():
    install(packages)
print(BIN)
