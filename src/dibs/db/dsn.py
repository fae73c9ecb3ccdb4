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
    """Return the parts of a DSN; none if it is unreadable, or if a piece of a password could be taken for a part."""
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        return None
    authority, _, path = dsn.partition("://")[2].partition("?")[0].partition("/")
    ports = str(parts.get("port", "")).split(",")
    if authority.count("@") > 1 or "@" in path or not all(port.isdecimal() or port == "" for port in ports):
        return None
    return parts
