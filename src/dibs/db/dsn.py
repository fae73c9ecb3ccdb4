"""Reads DSNs, and never shows one: it may hold a password."""

from __future__ import annotations

import re
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from dibs.db.connection import reachable, refused
from dibs.errors import InvalidArgument

PATIENCE = 10.0
"""Seconds that a separate connection may take to be made."""

_DRIVER = re.compile(r"^(postgres(?:ql)?)\+\w+(?=://)")
"""The names of drivers that SQLAlchemy adds to a URL."""


def read(dsn: str) -> str:
    """Return the DSN as libpq takes it. The error for an unreadable one repeats nothing of it."""
    text = _DRIVER.sub(r"\1", dsn)
    if _parts(text) is None:
        raise InvalidArgument(
            "the DSN cannot be read",
            hint="it looks like postgresql://user@host/database; in a password, @ is %40, / is %2F and % is %25",
        )
    return text


def has_password(dsn: str) -> bool:
    """Return True if a DSN carries a password that others could read along with it."""
    return "password" in (_parts(_DRIVER.sub(r"\1", dsn)) or {})


def place(dsn: str) -> str:
    """Describe the database of a DSN: its name and its host, without a password."""
    parts = _parts(read(dsn)) or {}
    host = str(parts.get("host") or parts.get("hostaddr") or "")
    name = parts.get("dbname") or parts.get("user") or "postgres"
    return f"{name}@{host}" if host and not host.startswith("/") else str(name)


def connect(dsn: str, *, autocommit: bool = True) -> psycopg.Connection[Any]:
    """Make a separate connection."""
    conninfo = reachable(read(dsn), PATIENCE)
    try:
        return psycopg.connect(conninfo, autocommit=autocommit)
    except psycopg.OperationalError as error:
        raise refused(error, conninfo) from error


def _parts(dsn: str) -> dict[str, Any] | None:
    """Return the parts of a DSN as libpq reads them, or None if it cannot.

    None, too, if a password looks unescaped. Of ``//u:p@ss@host``, ``//u:p/ss@host`` and ``//u:p:ss`` libpq would take
    the end of the password for the host, the database or the port, and we would show it.
    """
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        return None
    url = dsn.partition("://")[2].partition("?")[0]
    user_and_host, _, database = url.partition("/")
    if user_and_host.count("@") > 1 or "@" in database:
        return None
    ports = str(parts.get("port", "")).split(",")  # One for each of several hosts.
    return parts if all(port.isdecimal() or port == "" for port in ports) else None
