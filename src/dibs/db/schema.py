"""Installing and migrating the schema, and telling whether it fits this client."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from dibs import sql
from dibs.db.translate import translate, translated
from dibs.errors import SchemaLocked, SchemaMissing, SchemaTooNew, SchemaTooOld


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a migration did: the versions before and after, what was applied, and the server's notices."""

    before: int | None
    after: int
    applied: tuple[str, ...]
    code_changed: bool
    notices: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether anything was done at all."""
        return bool(self.applied) or self.code_changed


def migrate(dsn: str, *, lock_timeout: float = 10.0, dry_run: bool = False) -> Migrated:
    """Bring a database to this package's schema: safe to run twice, and by two processes at once.

    Refuses a schema in which anything belongs to another role: that would be run with our rights.
    ``dry_run`` changes nothing and says what would be done.
    """
    with translated(), psycopg.connect(dsn, autocommit=True) as conn:
        notices: list[str] = []
        conn.add_notice_handler(lambda d: notices.append(d.message_primary or ""))
        conn.execute("set search_path = pg_catalog, pg_temp")
        conn.execute(sql.OURS)
        before = installed(conn)
        if before and before[0] > sql.latest_version():
            raise _too_new(before[0])
        if before == (sql.latest_version(), sql.digest()):
            return Migrated(before[0], before[0], (), False, ())
        script = sql.install_script(lock_timeout=f"{round(lock_timeout * 1000)}ms")
        try:
            if not dry_run:
                conn.execute(script)
        except psycopg.errors.LockNotAvailable as error:
            raise SchemaLocked(
                f"another migration, or a long transaction, held a lock for more than {lock_timeout:g} s",
                hint="nothing was changed; run it again, or give a longer --lock-timeout",
            ) from error
        start = before[0] if before else 0
        return Migrated(
            before[0] if before else None,
            sql.latest_version(),
            tuple(f"{v:04} {n.replace('_', ' ')}" for v, n, _ in sql.migrations() if v > start),
            before is None or before[1] != sql.digest(),
            tuple(n for n in notices if n.startswith("dibs:")),
        )


def installed(conn: psycopg.Connection) -> tuple[int, str] | None:
    """The version and the digest of the schema there, or None."""
    if conn.execute("select to_regprocedure('dibs.version()')").fetchone() == (None,):
        row = conn.execute("select to_regclass('dibs.migration')").fetchone()
        if row == (None,):
            return None
        row = conn.execute("select coalesce(max(version), 0), '' from dibs.migration").fetchone()
    else:
        row = conn.execute("select version, code from dibs.version()").fetchone()
    return (row[0], row[1] or "") if row else None


def check_fit(version: int) -> None:
    """Raise if a schema of this version does not fit this client."""
    if version < sql.latest_version():
        raise SchemaTooOld(
            f"the schema dibs in this database has version {version}; this client needs {sql.latest_version()}",
            hint="run: dibs migrate",
        )
    if version > sql.latest_version():
        raise _too_new(version)


def _too_new(version: int) -> SchemaTooNew:
    return SchemaTooNew(
        f"the schema dibs in this database has version {version}; this client knows only up to {sql.latest_version()}",
        hint="upgrade the dibs package: pip install -U dibs",
    )


def missing(error: psycopg.Error) -> Exception:
    """What an error while asking for the version means."""
    if error.sqlstate in {"3F000", "42883", "42P01"}:
        return SchemaMissing("dibs is not installed in this database", hint="run: dibs init (or: dibs sql | psql)")
    return translate(error)
