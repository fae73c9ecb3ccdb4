"""Runs calls on SQLAlchemy's connections and sessions, over psycopg 3 or asyncpg."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from dibs.db.adapters.asyncpg import numbered, plain
from dibs.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection

    from dibs.db.calls import Call

R = TypeVar("R")


def run(conn: Any, call: Call[R]) -> R:
    """Run a call in the transaction of a Connection or Session. It begins if none is open."""
    connection: Connection = conn if hasattr(conn, "exec_driver_sql") else conn.connection()
    rows = connection.exec_driver_sql(_statement(connection, call.sql), call.args).fetchall()
    return call.read([plain(row) for row in rows])


async def run_async(conn: Any, call: Call[R]) -> R:
    """Run a call in the transaction of an AsyncConnection or AsyncSession."""
    connection: AsyncConnection = conn if hasattr(conn, "exec_driver_sql") else await conn.connection()
    return await connection.run_sync(run, call)


@contextmanager
def transaction(conn: Any) -> Iterator[Any]:
    """Commit a Connection or Session after the block, or roll it back if the block raises.

    One that has begun before is no problem, unlike with other libraries: the commit takes that along.
    """
    try:
        yield conn
    except BaseException:
        conn.rollback()
        raise
    conn.commit()


@asynccontextmanager
async def transaction_async(conn: Any) -> AsyncIterator[Any]:
    """Commit an AsyncConnection or AsyncSession after the block, or roll it back if the block raises.

    One that has begun before is no problem, unlike with other libraries: the commit takes that along.
    """
    try:
        yield conn
    except BaseException:
        await conn.rollback()
        raise
    await conn.commit()


def _statement(connection: Connection, sql: str) -> str:
    dialect = connection.dialect
    if dialect.name == "postgresql" and dialect.driver == "psycopg":
        return sql
    if dialect.name == "postgresql" and dialect.driver == "asyncpg":
        return numbered(sql)
    raise InvalidArgument(
        f"conn= is of SQLAlchemy's dialect {dialect.name}+{dialect.driver}, which dibs cannot use",
        hint="make the engine with postgresql+psycopg:// (sync and async) or postgresql+asyncpg://",
    )
