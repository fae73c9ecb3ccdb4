"""The database itself: its time, and its schema's version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dibs.db.calls.call import Call, first

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


class Installed(NamedTuple):
    """What a client asks of a database before its first call."""

    version: int
    oldest_client: int
    now: datetime


def now() -> Call[datetime]:
    """The database's time."""
    return Call("select dibs.now()", (), first)


def bound(timeout: float, read_only: bool) -> Call[Any]:
    """Bound the other statements of the transaction: in seconds, and to reading."""
    return Call(
        "select set_config('statement_timeout', %s, true), set_config('transaction_read_only', %s, true)",
        (f"{timeout * 1000:.0f}", "on" if read_only else "off"),
        first,
        slow=True,
    )


def login() -> Call[str]:
    """Which role we are logged in as."""
    return Call("select session_user::text", (), first)


def installed() -> Call[Installed]:
    """Which schema is installed, and the database's time."""
    return Call("select version, oldest_client, dibs.now() from dibs.version()", (), _read)


def _read(rows: Sequence[tuple[Any, ...]]) -> Installed:
    version, oldest_client, now = rows[0]
    return Installed(version, oldest_client or 0, now)
