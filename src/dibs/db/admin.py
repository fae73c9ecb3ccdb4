"""Plain statements, for tests and for making databases."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from psycopg import sql
from psycopg.conninfo import make_conninfo

from dibs.db.dsn import connect, read
from dibs.db.translate import translated

_URL = re.compile(r"(\w+://)([^@/]*@)?([^/?]*)(?:/[^?]*)?(?:\?(.*))?", re.DOTALL)
"""A URL: its scheme, its login with the password, its hosts, and its settings. Its database is left out."""


def execute(dsn: str, statement: str, args: tuple[Any, ...] | None = None) -> None:
    """Run a statement, or a script of several when it has no arguments, on a separate connection."""
    with translated(), connect(dsn) as conn:
        conn.execute(statement, args)


def fetch(dsn: str, statement: str) -> Any:
    """Run a statement and return its first value."""
    with translated(), connect(dsn) as conn:
        row = conn.execute(statement).fetchone()
    return row and row[0]


def at_database(dsn: str, name: str) -> str:
    """Return the DSN with another database; a URL stays a URL."""
    dsn = read(dsn)
    if not dsn.startswith(("postgresql://", "postgres://")):
        return make_conninfo(dsn, dbname=name)
    # As libpq takes a URL apart, and not urlsplit, for which a # in a password begins a fragment.
    scheme, login, host, query = _URL.fullmatch(dsn).groups("")  # type: ignore[union-attr]
    settings = "&".join(setting for setting in query.split("&") if not setting.startswith("dbname="))
    return f"{scheme}{login}{host}/{quote(name, safe='')}{'?' if settings else ''}{settings}"


def create_database(dsn: str, name: str, *, template: str | None = None, by_files: bool = False) -> None:
    """Make a database, as a copy of ``template`` where one is given.

    ``by_files`` copies the template's files and takes a checkpoint for it: quicker on a server that does not sync.
    """
    copy = sql.SQL(" template {}").format(sql.Identifier(template)) if template else sql.SQL("")
    copy += sql.SQL(" strategy file_copy") if by_files else sql.SQL("")
    with translated(), connect(dsn) as conn:
        conn.execute(sql.SQL("create database {}{}").format(sql.Identifier(name), copy))


def drop_database(dsn: str, name: str) -> None:
    """Drop a database, and every connection to it."""
    with translated(), connect(dsn) as conn:
        conn.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))
