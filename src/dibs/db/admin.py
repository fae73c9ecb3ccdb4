"""Plain statements, for tests and for making databases."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from dibs.db.translate import translated


def execute(dsn: str, statement: str, args: tuple[Any, ...] | None = None) -> None:
    """Run a statement, or a script of several when it has no arguments, in a connection of its own."""
    with translated(), psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(statement, args)


def create_database(dsn: str, name: str, *, template: str | None = None) -> None:
    """Make a database, as a copy of ``template`` where one is given."""
    copy = sql.SQL(" template {}").format(sql.Identifier(template)) if template else sql.SQL("")
    with translated(), psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("create database {}{}").format(sql.Identifier(name), copy))


def drop_database(dsn: str, name: str) -> None:
    """Drop a database, and whoever is connected to it."""
    with translated(), psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))
