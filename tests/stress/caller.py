"""One thread's connection: it runs plain SQL, judges errors, and remembers what was committed."""

from __future__ import annotations

import random
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus

from tests.stress.errors import why_expected

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import LiteralString
    from uuid import UUID

    from tests.stress.world import World

    Params = Sequence[Any] | dict[str, Any]

PATIENCE = "30s"
"""A call that waits for longer is stuck."""


QUICK = """
select set_config('deadlock_timeout', '500ms', false) from pg_roles where rolname = current_user and rolsuper"""
"""A deadlock is a finding, and all stand still until it is found; the core gives way before, after 400 ms."""


class Refused(Exception):
    """The call raised an error; its transaction, if there was one, is rolled back."""

    def __init__(self, code: str | None) -> None:
        super().__init__(code)
        self.code = code


class Rollback(Exception):
    """Leave a transaction without committing it."""


class Caller:
    """A connection in autocommit that is opened again when it breaks."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.chance = random.Random(f"{world.seed} {name}")
        self._open = False
        self._old_snapshot = False
        self._made: list[UUID] = []
        self._done: list[UUID] = []
        self._connect()

    def _connect(self) -> None:
        self._conn = psycopg.connect(
            self.world.dsn, autocommit=True, application_name=self.name, options=f"-c statement_timeout={PATIENCE}"
        )
        self._conn.add_notice_handler(self._hear)
        self._conn.execute(QUICK)
        self.world.pids[self.name] = self._conn.info.backend_pid

    def _hear(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self.world.warnings[notice.message_primary or ""] += 1

    def close(self) -> None:
        """End the connection."""
        self._conn.close()

    def run(self, verb: str, sql: LiteralString, params: Params = (), *, ends: Sequence[UUID] = ()) -> list[Any]:
        """Run a statement and return its rows. `ends` are jobs that it may complete."""
        self.world.calls[verb] += 1
        try:
            cursor = self._conn.execute(sql, params or None)
            rows = cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            self._judge(verb, sql, params, error, ends)
            raise Refused(error.sqlstate) from error
        return rows

    def made(self, ids: Sequence[UUID]) -> None:
        """These were enqueued, if the transaction commits."""
        self._made += ids
        self._settle()

    def done(self, ids: Sequence[UUID]) -> None:
        """These were completed, if the transaction commits."""
        self._done += ids
        self._settle()

    def _settle(self) -> None:
        if not self._open:
            self.world.remember(self._made, self._done)
            self._forget()

    def _forget(self) -> None:
        self._made, self._done = [], []

    def _judge(self, verb: str, sql: str, params: Params, error: psycopg.Error, ends: Sequence[UUID]) -> None:
        """Count an expected error; any other is a finding."""
        broken = self._conn.closed
        code = error.sqlstate or ("57P01" if broken and self.world.pids[self.name] in self.world.killed else None)
        if broken and (not self._open or verb == "commit"):
            with self.world.lock:
                self.world.unsure.update(ends)
        if why_expected(verb, code, old_snapshot=self._old_snapshot):
            self.world.errors[verb, code or ""] += 1
            return
        first = (error.diag.message_primary or str(error)).partition("\n")[0]
        said = re.sub(r"'[^']*'|[0-9a-f]{8}-[0-9a-f-]{27}|\d+", "#", first)
        detail = f"{sql}\n{str(params)[:600]}\n{error}"
        self.world.find(f"{verb} raised {code}: {said}", detail)

    def reset(self) -> None:
        """Get ready for the next step, whatever the last one left."""
        self._open = self._old_snapshot = False
        self._forget()
        if not self._conn.closed and self._conn.info.transaction_status != TransactionStatus.IDLE:
            try:
                self._conn.execute("rollback")
            except psycopg.Error:
                self._conn.close()
        if self._conn.closed:
            self._connect()

    @contextmanager
    def transaction(self, *, old_snapshot: bool = False) -> Iterator[None]:
        """What is inside commits together; Rollback takes it back."""
        begin: LiteralString = "begin isolation level repeatable read" if old_snapshot else "begin"
        self.run("begin", begin)
        self._open, self._old_snapshot = True, old_snapshot
        try:
            yield
        except Rollback:
            self._forget()
            self._open = False
            self.run("rollback", "rollback")
            return
        self.run("commit", "commit", ends=self._done)
        self._open = self._old_snapshot = False
        self._settle()
