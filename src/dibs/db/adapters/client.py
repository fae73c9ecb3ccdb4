"""Runs calls on the connections that ``Client`` takes as ``conn=``."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from psycopg.rows import tuple_row

from dibs.db.adapters import detect, django, sqlalchemy
from dibs.db.adapters.failures import adapted, open_already, refuse_closed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    import psycopg

    from dibs.db.calls import Call

R = TypeVar("R")


def join(conn: detect.Connection, call: Call[R]) -> R:
    """Run a call in the transaction of a caller's connection, of any library."""
    library = detect.library(conn, detect.SYNC, detect.ASYNC)
    theirs: Any = conn
    with adapted():
        if library == "sqlalchemy":
            return sqlalchemy.run(theirs, call)
        if library == "django":
            return django.run(theirs, call)
        refuse_closed(theirs)
        return run_on(theirs, call)


def begin(conn: detect.Connection) -> AbstractContextManager[Any]:
    """Begin a transaction on a caller's connection. It commits if the block does not raise."""
    return _TRANSACTIONS[detect.library(conn, detect.SYNC, detect.ASYNC)](conn)


@contextmanager
def _transaction(conn: psycopg.Connection[Any]) -> Iterator[Any]:
    refuse_closed(conn)
    if conn.info.transaction_status:
        raise open_already()
    with conn.transaction():
        yield conn


_TRANSACTIONS: dict[str, Callable[[Any], AbstractContextManager[Any]]] = {
    "psycopg": _transaction,
    "sqlalchemy": sqlalchemy.transaction,
    "django": django.transaction,
}


def run_on(conn: psycopg.Connection[Any], call: Call[R]) -> R:
    """Run a call on a psycopg connection, in its transaction."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(call.sql, call.args, binary=call.binary)
        return call.read(cursor.fetchall())
