"""Translates errors of any driver or framework to errors of dibs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from dibs.db.adapters.detect import names
from dibs.db.translate import Report, error_of, translate
from dibs.errors import ConnectionLost, DibsError, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator

MISUSE = {
    ("asyncpg", "InterfaceError"),
    ("sqlalchemy", "InvalidRequestError"),
    ("django", "InterfaceError"),
    ("django", "ProgrammingError"),
    ("django", "SynchronousOnlyOperation"),
}
"""Errors that a library raises before it asks the server: a closed, released, busy or unstarted connection."""


class adapted:  # noqa: N801 - a context manager read as a verb
    """Raises errors of dibs in the block instead of those of the connection's library."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and (told := _ours(error)) is not None:
            raise told from error


def refuse_closed(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Refuse a psycopg connection that its owner has closed. Raise ConnectionLost for one that broke off."""
    if conn.broken:
        raise ConnectionLost("the connection given as conn= is lost", hint="give one that is open")
    if conn.closed:
        raise InvalidArgument("the connection given as conn= is closed", hint="give one that is open")


def open_already() -> InvalidArgument:
    """Return the error for a connection that is in a transaction: to leave our block would not commit that one."""
    return InvalidArgument(
        "the connection has a transaction open already, so leaving the block would not commit it",
        hint="commit or roll back first, or give another connection to context().transaction()",
    )


def _ours(error: Exception) -> DibsError | None:
    if isinstance(error, DibsError):
        return None
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, psycopg.Error):
            return translate(cause)
        if ("asyncpg", "PostgresError") in names(type(cause)):
            return error_of(_report(cause))
    for cause in causes:
        if not MISUSE.isdisjoint(names(type(cause))):
            return InvalidArgument(
                f"the connection given as conn= cannot be used: {cause}",
                hint="give one that is open, idle, and has no failed transaction to roll back",
            )
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and those it wraps: SQLAlchemy has ``orig``, Django the cause."""
    while error is not None:
        yield error
        error = getattr(error, "orig", None) or error.__cause__


def _report(error: Any) -> Report:
    message = error.message or str(error)  # asyncpg's own errors have no fields of the server
    return Report(error.sqlstate, message, error.hint, error.detail, error.constraint_name)
