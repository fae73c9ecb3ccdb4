"""The database itself: its time, and its schema's version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.db.calls.call import Call, first

if TYPE_CHECKING:
    from datetime import datetime


def now() -> Call[datetime]:
    """The database's time."""
    return Call("select dibs.now()", (), first)


def version() -> Call[tuple[int, str]]:
    """The schema's version and the digest of its functions."""
    return Call("select version, code from dibs.version()", (), lambda rows: (rows[0][0], rows[0][1]))
