"""Connections that give up on a silent server, and the reason why a server refuses one."""

from __future__ import annotations

import math
import os
import re
import selectors
import tempfile
import time
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import capabilities, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow, tuple_row

from dibs.db.translate import Report, error_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from dibs.errors import DibsError

KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000}
"""Settings of libpq by which a lost peer is noticed within half a minute."""
LEAST_CONNECT_TIMEOUT, MOST_CONNECT_TIMEOUT = 2, 10
"""The bounds, in seconds, of the time to make a connection. Within them it is the caller's patience."""
ASK_AGAIN_WITHIN = 2.0
"""Seconds to connect once more, to learn why the server has refused us."""
CANCEL = 1.0
"""Seconds to try to cancel a statement whose caller has stopped waiting."""
WAITING = (pq.PollingStatus.READING, pq.PollingStatus.WRITING)


def reachable(dsn: str, patience: float) -> str:
    """Return the DSN with timeouts, except those that it sets itself."""
    given = conninfo_to_dict(dsn)
    timeouts: dict[str, Any] = {name: value for name, value in KEEPALIVE.items() if name not in given}
    if "connect_timeout" not in given and "PGCONNECT_TIMEOUT" not in os.environ:
        timeouts["connect_timeout"] = min(MOST_CONNECT_TIMEOUT, max(LEAST_CONNECT_TIMEOUT, math.ceil(patience)))
    return make_conninfo(dsn, **timeouts)


class NoAnswer(psycopg.OperationalError):
    """The server did not answer in time."""


class Connection(psycopg.Connection[Any]):
    """A connection that is closed when the server is silent for ``answer_timeout`` seconds while we wait for it."""

    answer_timeout: float | None = None

    @cached_property
    def _cursor(self) -> psycopg.Cursor[TupleRow]:
        return psycopg.Cursor(self, row_factory=tuple_row)

    def fetch(self, sql: Any, args: tuple[Any, ...], *, binary: bool) -> list[TupleRow]:
        """Run a statement and return its rows. One cursor is reused, so that psycopg's dumpers and loaders are kept."""
        cursor = self._cursor.execute(sql, args, binary=binary)
        rows = cursor.fetchall()
        if cursor.pgresult is not None:
            cursor.pgresult.clear()  # Free it now: it may be large, and would be kept until the next call.
        return rows

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Wait for the server's answer."""
        if self.answer_timeout is None:
            return super().wait(gen, *args, **options)
        try:
            return super().wait(_with_timeout(gen, self.answer_timeout), *args, **options)
        except NoAnswer:
            with suppress(psycopg.Error):
                self.cancel_safe()
            self.pgconn.finish()
            raise

    def cancel_safe(self, *, timeout: float = CANCEL) -> None:
        """Cancel the statement that runs on this connection."""
        if capabilities.has_cancel_safe():
            super().cancel_safe(timeout=min(timeout, CANCEL))


class AsyncConnection(psycopg.AsyncConnection[Any]):
    """An async connection that is closed when the server is silent for ``answer_timeout`` seconds."""

    answer_timeout: float | None = None

    @cached_property
    def _cursor(self) -> psycopg.AsyncCursor[TupleRow]:
        return psycopg.AsyncCursor(self, row_factory=tuple_row)

    async def fetch(self, sql: Any, args: tuple[Any, ...], *, binary: bool) -> list[TupleRow]:
        """Run a statement and return its rows. One cursor is reused, so that psycopg's dumpers and loaders are kept."""
        cursor = await self._cursor.execute(sql, args, binary=binary)
        rows = await cursor.fetchall()
        if cursor.pgresult is not None:
            cursor.pgresult.clear()  # Free it now: it may be large, and would be kept until the next call.
        return rows

    async def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        """Wait for the server's answer."""
        if self.answer_timeout is None:
            return await super().wait(gen, *args, **options)
        try:
            return await super().wait(_with_timeout(gen, self.answer_timeout), *args, **options)
        except NoAnswer:
            with suppress(psycopg.Error):
                await self.cancel_safe()
            self.pgconn.finish()
            raise

    async def cancel_safe(self, *, timeout: float = CANCEL) -> None:
        """Cancel the statement that runs on this connection."""
        if capabilities.has_cancel_safe():
            await super().cancel_safe(timeout=min(timeout, CANCEL))


def _with_timeout(gen: Any, timeout: float) -> Generator[Any, Any, Any]:
    """Run the steps of a wait. Raise NoAnswer if the socket is not ready for so long.

    psycopg resumes the steps without a ready socket now and then.
    """
    until = time.monotonic() + timeout
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                until = time.monotonic() + timeout
            elif time.monotonic() > until:
                raise NoAnswer(f"the server did not answer for {timeout:.1f} s")
            wanted = gen.send(ready)
    except StopIteration as done:
        return done.value


def refused(error: psycopg.OperationalError, dsn: str) -> DibsError:
    """Make the error for a failed connection. A server that refuses us is told apart from one that may come back."""
    return error_of(Report(_refusal(dsn), str(error).strip(), None, None, None))


def _refusal(dsn: str) -> str | None:
    """Return the SQLSTATE with which the server refuses a connection, if it does.

    libpq shows it only in its trace; the message may be in any language.
    """
    with tempfile.TemporaryFile() as file:
        copy = os.dup(file.fileno())
        try:
            pgconn = pq.PGconn.connect_start(dsn.encode())
            pgconn.trace(copy)
            _connect(pgconn, time.monotonic() + ASK_AGAIN_WITHIN)
            pgconn.untrace()
            pgconn.finish()
        except psycopg.NotSupportedError:
            return None
        finally:
            os.close(copy)
        file.seek(0)
        states = re.findall(rb'\tErrorResponse\t S "[^"]*" V "\w+" C "(\w{5})"', file.read())
    return states[-1].decode() if states else None


def _connect(pgconn: pq.abc.PGconn, until: float) -> None:
    while (status := pgconn.connect_poll()) in WAITING and (left := until - time.monotonic()) > 0:
        with selectors.DefaultSelector() as selector:  # Not select.select, which refuses descriptors from 1024 on.
            is_reading = status == pq.PollingStatus.READING
            selector.register(pgconn.socket, selectors.EVENT_READ if is_reading else selectors.EVENT_WRITE)
            selector.select(left)
