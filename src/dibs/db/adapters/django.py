"""Runs calls on Django's connections."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from dibs.db.adapters.failures import open_already, refuse_closed
from dibs.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dibs.db.calls import Call

R = TypeVar("R")


def run(conn: Any, call: Call[R]) -> R:
    """Run a call in the connection's transaction; outside of ``atomic``, in its own."""
    driver = getattr(getattr(conn, "Database", None), "__name__", "none")
    if getattr(conn, "vendor", None) != "postgresql" or driver != "psycopg":
        raise InvalidArgument(
            f"conn= is Django's connection to {getattr(conn, 'vendor', 'something else')} over {driver}",
            hint="dibs needs the engine django.db.backends.postgresql with psycopg 3",
        )
    if conn.in_atomic_block and conn.connection is not None:
        refuse_closed(conn.connection)
    with conn.cursor() as cursor:
        cursor.execute(call.sql, call.args)
        return call.read(cursor.fetchall())


@contextmanager
def transaction(conn: Any) -> Iterator[Any]:
    """Begin an ``atomic`` block on the connection. Refuse a connection on which its end would not commit."""
    from django.db.transaction import atomic

    if conn.in_atomic_block or not conn.get_autocommit():  # Without autocommit the caller commits.
        raise open_already()
    with atomic(using=conn.alias):
        yield conn
