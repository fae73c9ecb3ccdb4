"""Runs calls on asyncpg's connections."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from dibs.db.adapters.failures import open_already

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from dibs.db.adapters.detect import AsyncpgConnection
    from dibs.db.calls import Call

R = TypeVar("R")

# asyncpg takes no text for these types, and a connection may have its own codecs for them (json.dumps for jsonb
# is common, and would quote what is JSON already). So they are sent as text, and PostgreSQL reads it.
THROUGH = {"jsonb": "text", "uuid[]": "text", "jsonb[]": "text[]", "interval[]": "text[]"}

_PLACEHOLDER = re.compile(r"%s(?:::(\w+(?:\[\])?))?")


@lru_cache(maxsize=100)
def numbered(sql: str) -> str:
    """Write a statement with ``$1``, ``$2``, … for its ``%s``, with casts for the types that asyncpg cannot send."""
    count = 0

    def number(found: re.Match[str]) -> str:
        nonlocal count
        count += 1
        casts = [THROUGH.get(found[1]), found[1]]
        return "::".join([f"${count}", *(cast for cast in casts if cast)])

    return _PLACEHOLDER.sub(number, sql)


def plain(row: Iterable[Any]) -> tuple[Any, ...]:
    """Return a row as a tuple, with Python's own UUIDs."""
    return tuple(UUID(int=v.int) if isinstance(v, UUID) and type(v) is not UUID else v for v in row)


async def run(conn: AsyncpgConnection, call: Call[R]) -> R:
    """Run a call in the connection's transaction, or in its own if none is open."""
    rows = await conn.fetch(numbered(call.sql), *call.args)
    return call.read([plain(row) for row in rows])


@asynccontextmanager
async def transaction(conn: Any) -> AsyncIterator[Any]:
    """Begin a transaction on the connection. Refuse a connection that has one open."""
    if conn.is_in_transaction():
        raise open_already()
    async with conn.transaction():
        yield conn
