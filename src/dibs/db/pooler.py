"""Whether a pooler is between us and the server, and how it shares connections."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import psycopg

from dibs.db.dsn import connect

if TYPE_CHECKING:
    from typing import Literal

    Mode = Literal["session", "transaction", "statement"]

TRIES = 5
"""How often to look: on a pooler that others use as well, two clients may get what they had by chance."""


def pooler_mode(dsn: str) -> Mode | None:
    """How a pooler shares its connections; None if there is none.

    Two clients ask which backend serves them, one of them twice in a row. In session mode each keeps its own. Else one
    gets what the other had, or, from a pooler that gives its connections out in turn, another at once.
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
            return "statement"  # It allows no transactions.
        return "session" if kept else "transaction"


def _backend(conn: psycopg.Connection[Any]) -> int:
    with conn.transaction():
        row = conn.execute("select pg_backend_pid()", prepare=False).fetchone()
    assert row
    pid: int = row[0]
    return pid
