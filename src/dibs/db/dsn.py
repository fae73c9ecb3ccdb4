"""Reading a DSN without ever showing it: there may be a password in it."""

from __future__ import annotations

import re
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from dibs.db.connection import reachable, refused
from dibs.errors import InvalidArgument

PATIENCE = 10.0
"""How many seconds a separate connection may take to be made."""

_DRIVER = re.compile(r"^(postgres(?:ql)?)\+\w+(?=://)")
"""What SQLAlchemy adds to name a driver."""


def read(dsn: str) -> str:
    """The DSN as libpq takes it. What it cannot read is refused, in words that repeat nothing of it."""
    text = _DRIVER.sub(r"\1", dsn)
    if _parts(text) is None:
        raise InvalidArgument(
            "the DSN cannot be read",
            hint="it looks like postgresql://user@host/database; in a password, @ is %40, / is %2F and % is %25",
        )
    return text


def has_password(dsn: str) -> bool:
    """Whether a DSN carries a password that others could read along with it."""
    return "password" in (_parts(_DRIVER.sub(r"\1", dsn)) or {})


def place(dsn: str) -> str:
    """Which database a DSN means, to be shown to people: its name and its host."""
    parts = _parts(read(dsn)) or {}
    host = str(parts.get("host") or parts.get("hostaddr") or "")
    name = parts.get("dbname") or parts.get("user") or "postgres"
    return f"{name}@{host}" if host and not host.startswith("/") else str(name)


def connect(dsn: str, *, autocommit: bool = True) -> psycopg.Connection[Any]:
    """A separate connection."""
    conninfo = reachable(read(dsn), PATIENCE)
    try:
        return psycopg.connect(conninfo, autocommit=autocommit)
    except psycopg.OperationalError as error:
        raise refused(error, conninfo) from error


def _parts(dsn: str) -> dict[str, Any] | None:
    """What a DSN says; nothing if it cannot be read, or if a piece of a password would be taken for something else."""
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        return None
    authority, _, path = dsn.partition("://")[2].partition("?")[0].partition("/")
    ports = str(parts.get("port", "")).split(",")
    if authority.count("@") > 1 or "@" in path or not all(port.isdecimal() or port == "" for port in ports):
        return None
    return parts
