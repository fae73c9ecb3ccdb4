"""Detects a pooler between us and the server, and its mode."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import psycopg

from dibs.db.dsn import connect

if TYPE_CHECKING:
    from typing import Literal

    Mode = Literal["session", "transaction", "statement"]

TRIES = 5
"""The number of looks. On a busy pooler, two clients may get their own backends back by chance."""


def pooler_mode(dsn: str) -> Mode | None:
    """Return the mode of the pooler; None if there is none.

    Two clients ask for the process id of their backend, one of them twice in a row. In session mode each keeps its own
    backend. In transaction mode a client gets the other's, or, if the pooler rotates its connections, a third.
    """
    with ExitStack() as stack:
        one, other = (stack.enter_context(connect(dsn)) for _ in range(2))
        try:
            mine, theirs = _backend(one), _backend(other)
            if mine == one.info.backend_pid:
                return None
            kept = mine != theirs and all(
                (_backend(one), _backend(one), _backend(other)) == (mine, mine, theirs) for _ in range(TRIES)
            )
        except psycopg.errors.ProtocolViolation:
            return "statement"  # In statement mode a pooler refuses transactions.
        return "session" if kept else "transaction"


def _backend(conn: psycopg.Connection[Any]) -> int:
    with conn.transaction():
        row = conn.execute("select pg_backend_pid()", prepare=False).fetchone()
    assert row
    pid: int = row[0]
    return pid
