"""The database itself: its time, and its schema's version."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dibs.db.calls.call import Call, first

if TYPE_CHECKING:
    from datetime import datetime


class Installed(NamedTuple):
    """What a client asks of a database before its first call."""

    version: int
    now: datetime


def now() -> Call[datetime]:
    """The database's time."""
    return Call("select dibs.now()", (), first)


def installed() -> Call[Installed]:
    """Which schema is installed, and the database's time."""
    return Call("select version, dibs.now() from dibs.version()", (), lambda rows: Installed(*rows[0]))
