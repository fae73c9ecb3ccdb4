"""Installs and migrates the schema, and checks that it fits this client."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
import psycopg

from dibs import sql
from dibs.db.dsn import connect
from dibs.db.translate import translate, translated
from dibs.errors import SchemaLocked, SchemaMissing, SchemaTooNew, SchemaTooOld

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT = 0.1
"""Seconds to wait for a lock of an object in use: other transactions queue behind us meanwhile."""
PAUSE = 0.4
"""Seconds to let other transactions go on before the next try for the locks."""


class Migrated(msgspec.Struct, frozen=True):
    """The result of a migration: the versions before and after, those applied, and the server's notices."""

    before: int | None
    after: int
    applied: tuple[str, ...]
    code_changed: bool
    notices: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """True if anything was changed."""
        return bool(self.applied) or self.code_changed


def migrate(
    dsn: str,
    *,
    lock_timeout: float = 10.0,
    dry_run: bool = False,
    repair: bool = False,
    waiting: Callable[[str], None] = lambda _: None,
) -> Migrated:
    """Bring a database to this package's schema: safe to run twice, and by two processes at once.

    Refuses a schema in which anything belongs to another role, because it would run with our rights. For
    ``lock_timeout`` seconds it tries to get its locks. Each try is short, because others queue behind it; after a try
    in vain ``waiting`` is called with a description of the transaction that holds the locks. ``dry_run`` changes
    nothing. ``repair`` installs the functions, views and grants again, even if they are those of this package.
    """
    with translated(), connect(dsn) as conn:
        notices: list[str] = []
        conn.add_notice_handler(lambda d: notices.append(d.message_primary or ""))
        conn.execute("set search_path = pg_catalog, pg_temp")
        conn.execute(sql.REFUSE_FOREIGN)
        before = installed(conn)
        if before and before[0] > sql.latest_version():
            raise SchemaTooNew(
                f"the schema dibs in this database has version {before[0]}; this package brings {sql.latest_version()}",
                hint="migrate with the newer package: pip install -U dibs",
            )
        if before == (sql.latest_version(), sql.digest()) and not repair:
            return Migrated(before[0], before[0], (), False, ())
        if not dry_run:
            _apply(conn, lock_timeout, waiting)
        start = before[0] if before else 0
        return Migrated(
            before[0] if before else None,
            sql.latest_version(),
            tuple(f"{v:04} {n.replace('_', ' ')}" for v, n, _ in sql.migrations() if v > start),
            repair or before is None or before[1] != sql.digest(),
            tuple(n for n in notices if n.startswith("dibs:")),
        )


def _apply(conn: psycopg.Connection, patience: float, waiting: Callable[[str], None]) -> None:
    until = time.monotonic() + patience
    while True:
        left = max(until - time.monotonic(), WAIT)
        try:
            conn.execute(sql.install_script(lock_timeout=_millis(WAIT), turn_timeout=_millis(left)))
            return
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            conn.rollback()
            holder = _holder(conn)
            if time.monotonic() >= until:
                raise SchemaLocked(
                    f"what has to be changed was locked for {patience:g} s; {holder}",
                    hint="nothing was changed; end that transaction, or try for longer with --lock-timeout",
                ) from error
        waiting(holder)
        time.sleep(PAUSE)


def _millis(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


def _holder(conn: psycopg.Connection) -> str:
    """Describe the oldest open transaction that holds locks of dibs; if none does, the oldest that writes."""
    row = conn.execute(
        "select a.pid, a.usename, a.state, extract(epoch from clock_timestamp() - a.xact_start)::integer, a.query"
        " from pg_stat_activity as a cross join lateral (select count(*) as locks from pg_locks as l"
        "   join pg_class as c on c.oid = l.relation and c.relnamespace = to_regnamespace('dibs')"
        "   where l.pid = a.pid and l.granted) as l"
        " where a.datname = current_database() and a.pid <> pg_backend_pid()"
        "   and (a.backend_xid is not null or l.locks > 0)"
        " order by l.locks = 0, a.xact_start limit 1"
    ).fetchone()
    if row is None:
        return "nobody holds it any more"
    pid, user, state, seconds, query = row
    since = "" if seconds is None else f", {state} for {seconds} s"  # Visible to the same role and to monitors only.
    return f"the oldest transaction there is of pid {pid} ({user}{since}): {' '.join(query.split())[:200]}"


def installed(conn: psycopg.Connection) -> tuple[int, str] | None:
    """Return the version and the digest of the installed schema, or None."""
    if conn.execute("select to_regprocedure('dibs.version()')").fetchone() == (None,):
        row = conn.execute("select to_regclass('dibs.migration')").fetchone()
        if row == (None,):
            return None
        row = conn.execute("select coalesce(max(version), 0), '' from dibs.migration").fetchone()
    else:
        row = conn.execute("select version, code from dibs.version()").fetchone()
    return (row[0], row[1] or "") if row else None


def check_fit(version: int, oldest_client: int) -> None:
    """Raise unless a schema fits this client: its own, the one before, or a later one that still serves it."""
    if version < sql.oldest_schema():
        raise SchemaTooOld(
            f"the schema dibs in this database has version {version}; this client needs {sql.oldest_schema()} or later",
            hint="run: dibs migrate",
        )
    if oldest_client > sql.latest_version():
        raise SchemaTooNew(
            f"the schema dibs in this database has version {version} and serves clients of version {oldest_client}"
            f" and later; this one is of version {sql.latest_version()}",
            hint="upgrade the dibs package: pip install -U dibs",
        )


def missing(error: psycopg.Error) -> Exception:
    """Translate an error of the query for the version."""
    if error.sqlstate in {"3F000", "42883", "42P01"}:
        return SchemaMissing("dibs is not installed in this database", hint="run: dibs migrate (or: dibs sql | psql)")
    return translate(error)
