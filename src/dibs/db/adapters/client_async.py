"""Runs calls on the connections that ``AsyncClient`` takes as ``conn=``."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from dibs.db.adapters import asyncpg, detect, sqlalchemy
from dibs.db.adapters.failures import adapted, open_already, refuse_closed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    import psycopg

    from dibs.db.calls import Call

R = TypeVar("R")


async def join(conn: detect.AsyncConnection, call: Call[R]) -> R:
    """Run a call in the transaction of a caller's connection, of any library."""
    library = detect.library(conn, detect.ASYNC, detect.SYNC)
    theirs: Any = conn
    with adapted():
        if library == "sqlalchemy":
            return await sqlalchemy.run_async(theirs, call)
        if library == "asyncpg":
            return await asyncpg.run(theirs, call)
        refuse_closed(theirs)
        return await run_on(theirs, call)


def begin(conn: detect.AsyncConnection) -> AbstractAsyncContextManager[Any]:
    """Begin a transaction on a caller's connection. It commits if the block does not raise."""
    return _TRANSACTIONS[detect.library(conn, detect.ASYNC, detect.SYNC)](conn)


@asynccontextmanager
async def _transaction(conn: psycopg.AsyncConnection[Any]) -> AsyncIterator[Any]:
    refuse_closed(conn)
    if conn.info.transaction_status != TransactionStatus.IDLE:
        raise open_already()
    async with conn.transaction():
        yield conn


_TRANSACTIONS: dict[str, Callable[[Any], AbstractAsyncContextManager[Any]]] = {
    "psycopg": _transaction,
    "sqlalchemy": sqlalchemy.transaction_async,
    "asyncpg": asyncpg.transaction,
}


async def run_on(conn: psycopg.AsyncConnection[Any], call: Call[R]) -> R:
    """Run a call on a psycopg connection, in its transaction."""
    async with conn.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(call.sql, call.args, binary=call.binary)
        return call.read(await cursor.fetchall())
