"""Where the database is: told, from the environment, or embedded."""

from __future__ import annotations

import os


def configured_dsn(dsn: str | None = None) -> str | None:
    """The DSN given, else ``DIBS_DSN``, else none: then the embedded PostgreSQL is used."""
    return dsn or os.environ.get("DIBS_DSN") or None
