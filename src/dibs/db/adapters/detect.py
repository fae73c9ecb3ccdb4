"""Detects the library of a caller's connection by the names of its classes, without importing any library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from dibs.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    import psycopg
    import sqlalchemy
    from sqlalchemy import orm
    from sqlalchemy.ext import asyncio as sqlalchemy_async


class AsyncpgConnection(Protocol):
    """The methods used of asyncpg's connections, which have no types."""

    def fetch(self, query: str, /, *args: Any) -> Awaitable[list[Any]]:
        """Run a statement and return its rows."""


class DjangoConnection(Protocol):
    """The methods used of Django's connections, which have no types."""

    vendor: str

    def cursor(self) -> Any:
        """Return a cursor in the connection's transaction."""


Connection: TypeAlias = (
    "psycopg.Connection[Any] | sqlalchemy.Connection | orm.Session | orm.scoped_session[Any] | DjangoConnection"
)
"""The connections that ``Client`` takes as ``conn=``."""

AsyncConnection: TypeAlias = (
    "psycopg.AsyncConnection[Any] | AsyncpgConnection | sqlalchemy_async.AsyncConnection"
    " | sqlalchemy_async.AsyncSession | sqlalchemy_async.async_scoped_session[Any]"
)
"""The connections that ``AsyncClient`` takes as ``conn=``."""

Name = tuple[str, str]


class Side(msgspec.Struct, frozen=True):
    """The connections that one of the two clients takes."""

    client: str
    takes: Mapping[Name, str]
    words: str
    elsewhere: str


SYNC = Side(
    "dibs.Client",
    {
        ("psycopg", "Connection"): "psycopg",
        ("sqlalchemy", "Connection"): "sqlalchemy",
        ("sqlalchemy", "Session"): "sqlalchemy",
        ("sqlalchemy", "scoped_session"): "sqlalchemy",
        ("django", "BaseDatabaseWrapper"): "django",
        ("django", "ConnectionProxy"): "django",
    },
    "a psycopg Connection, a SQLAlchemy Connection or Session, or django.db.connection",
    "make the call on a dibs.Client, from async code in a thread that has the connection to itself",
)
ASYNC = Side(
    "dibs.AsyncClient",
    {
        ("psycopg", "AsyncConnection"): "psycopg",
        ("asyncpg", "Connection"): "asyncpg",
        ("asyncpg", "PoolConnectionProxy"): "asyncpg",
        ("sqlalchemy", "AsyncConnection"): "sqlalchemy",
        ("sqlalchemy", "AsyncSession"): "sqlalchemy",
        ("sqlalchemy", "async_scoped_session"): "sqlalchemy",
    },
    "a psycopg AsyncConnection, an asyncpg Connection, or a SQLAlchemy AsyncConnection or AsyncSession",
    "await the call on a dibs.AsyncClient",
)
HOLDERS: Mapping[Name, str] = {
    ("psycopg_pool", "ConnectionPool"): "with pool.connection() as conn:",
    ("psycopg_pool", "AsyncConnectionPool"): "async with pool.connection() as conn:",
    ("asyncpg", "Pool"): "async with pool.acquire() as conn, conn.transaction():",
    ("sqlalchemy", "Engine"): "with engine.begin() as conn:",
    ("sqlalchemy", "AsyncEngine"): "async with engine.begin() as conn:",
    ("sqlalchemy", "sessionmaker"): "with sessions.begin() as session:",
    ("sqlalchemy", "async_sessionmaker"): "async with sessions.begin() as session:",
}
"""Classes that hold connections, and the code that takes one from them."""


def names(kind: type) -> list[Name]:
    """Return the package and name of a class and of its bases."""
    return [(cls.__module__.partition(".")[0], cls.__name__) for cls in kind.__mro__]


def library(conn: object, mine: Side, other: Side) -> str:
    """Return the library of a connection. Refuse one that this side does not take, with a hint."""
    found = names(type(conn))
    for name in found:
        if name in mine.takes:
            return mine.takes[name]
    given = f"conn= is a {type(conn).__module__}.{type(conn).__qualname__}, which {mine.client} cannot use"
    if any(name in other.takes for name in found):
        raise InvalidArgument(given, hint=f"{other.elsewhere}; {mine.client} takes {mine.words}")
    way = next((f"take a connection of it: {HOLDERS[name]} …; " for name in found if name in HOLDERS), "")
    raise InvalidArgument(given, hint=f"{way}{mine.client} takes {mine.words}")
