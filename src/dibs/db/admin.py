"""Plain statements, for tests and for making databases."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

from psycopg import sql
from psycopg.conninfo import make_conninfo

from dibs.db.dsn import connect, read
from dibs.db.translate import translated


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
    if dsn.startswith(("postgresql://", "postgres://")):
        # Not urlunsplit: if the host is empty, as for a socket, it drops the slashes.
        parts = urlsplit(dsn)
        query = f"?{parts.query}" if parts.query else ""
        return f"{parts.scheme}://{parts.netloc}/{quote(name, safe='')}{query}"
    return make_conninfo(dsn, dbname=name)


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
