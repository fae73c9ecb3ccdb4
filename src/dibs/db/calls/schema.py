"""The database itself: its time, and its schema's version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, LiteralString, NamedTuple

from dibs.db.calls.call import Call, first

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from dibs.operation import Action


CAN_TAKE: LiteralString = """pg_has_role(session_user, r.oid,
  case when current_setting('server_version_num')::integer < 160000 then 'member' else 'set' end)"""
"""Whether our login can take a role: since PostgreSQL 16 that is a right beside membership."""
TAKEN = f"""select r.rolname::text from pg_catalog.pg_roles as r where r.rolname = any (%s::text[]) and {CAN_TAKE}
  order by array_position(%s::text[], r.rolname::text) limit 1"""

TAKEABLE: LiteralString = f"""
select session_user::text, array(select r.rolname::text from pg_roles as r where r.rolname = any (%s) and {CAN_TAKE})
from pg_namespace where nspname = 'dibs'"""
"""Our login, and which of some roles it can take; nothing if dibs is not installed."""


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


def take_role(action: Action) -> Call[str]:
    """Let the rest of the transaction do no more than an action needs.

    Who may not read payloads, and so cannot take that role, reads as an observer.
    """
    roles = [f"dibs_{action}", *(["dibs_observer"] if action == "read" else [])]
    return Call(f"select set_config('role', coalesce(({TAKEN}), %s), true)", (roles, roles, roles[0]), first)


def login() -> Call[str]:
    """Which role we are logged in as."""
    return Call("select session_user::text", (), first)


def installed() -> Call[Installed]:
    """Which schema is installed, and the database's time."""
    return Call("select version, oldest_client, dibs.now() from dibs.version()", (), _read)


def _read(rows: Sequence[tuple[Any, ...]]) -> Installed:
    version, oldest_client, now = rows[0]
    return Installed(version, oldest_client or 0, now)
