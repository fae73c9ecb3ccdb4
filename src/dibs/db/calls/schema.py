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
"""A condition: our login can take a role. Since PostgreSQL 16 membership alone does not suffice."""
TAKEN = f"""select r.rolname::text from pg_catalog.pg_roles as r where r.rolname = any (%s::text[]) and {CAN_TAKE}
  order by array_position(%s::text[], r.rolname::text) limit 1"""

TAKEABLE: LiteralString = f"""
select session_user::text, array(select r.rolname::text from pg_roles as r where r.rolname = any (%s) and {CAN_TAKE})
from pg_namespace where nspname = 'dibs'"""
"""Return our login, and which of some roles it can take; no row if dibs is not installed."""


class Installed(NamedTuple):
    """The facts about a database that a client reads before its first call."""

    version: int
    oldest_client: int
    now: datetime


def now() -> Call[datetime]:
    """Return the database's time."""
    return Call("select dibs.now()", (), first)


def bound(timeout: float, read_only: bool) -> Call[Any]:
    """Limit the time of the transaction's other statements, and make it read-only if asked."""
    return Call(
        "select set_config('statement_timeout', %s, true), set_config('transaction_read_only', %s, true)",
        (f"{max(timeout * 1000, 1):.0f}", "on" if read_only else "off"),
        first,
        slow=True,
    )


def take_role(action: Action) -> Call[str]:
    """Take the role of an action for the rest of the transaction.

    A login that may not read payloads cannot take the role of reading. It reads as an observer.
    """
    roles = [f"dibs_{action}", *(["dibs_observer"] if action == "read" else [])]
    return Call(f"select set_config('role', coalesce(({TAKEN}), %s), true)", (roles, roles, roles[0]), first)


def login() -> Call[str]:
    """Return our login."""
    return Call("select session_user::text", (), first)


def installed() -> Call[Installed]:
    """Return the version of the installed schema, and the database's time."""
    return Call("select version, oldest_client, dibs.now() from dibs.version()", (), _read)


def _read(rows: Sequence[tuple[Any, ...]]) -> Installed:
    version, oldest_client, now = rows[0]
    return Installed(version, oldest_client or 0, now)
