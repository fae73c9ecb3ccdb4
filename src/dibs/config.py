"""The DSN: given, from the environment, or none for the embedded PostgreSQL."""

from __future__ import annotations

import os

from dibs.errors import InvalidArgument


def configured_dsn(dsn: str | None = None) -> str | None:
    """Return the DSN given, or that of ``DIBS_DSN``, or None: then the embedded PostgreSQL is used."""
    found = os.environ.get("DIBS_DSN") if dsn is None else dsn
    if found is not None and not found.strip():
        named = "DIBS_DSN" if dsn is None else "the DSN"
        raise InvalidArgument(f"{named} is empty", hint="give it a value such as postgresql://user@host/database")
    return found
