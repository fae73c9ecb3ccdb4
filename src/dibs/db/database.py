# Written by tools/unasync.py from database_async.py: change that and run `make sync`.
"""A database of dibs: its pool, the schema check, and calls that are repeated when a connection is lost."""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, LiteralString, TypeVar

import msgspec
import psycopg
from psycopg.rows import tuple_row
from psycopg.types.json import set_json_loads
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from dibs.db import calls
from dibs.db.adapters.client import join, run_on
from dibs.db.connection import Connection, reachable, refused
from dibs.db.dsn import read
from dibs.db.schema import check_fit, missing
from dibs.db.translate import translate, translated
from dibs.errors import ClientClosed, ConnectionLost, DibsError, IdTaken, PoolExhausted, ServerError
from dibs.runtime.points import reach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from dibs.db.adapters.detect import Connection as TheirConnection
    from dibs.db.calls import Call
    from dibs.db.calls.schema import Installed

R = TypeVar("R")
ISOLATION: LiteralString = "set default_transaction_isolation = 'read committed'"
RESET_SESSION: LiteralString = f"""
reset session authorization; reset role; reset all; {ISOLATION};
close all; unlisten *; select pg_advisory_unlock_all(); discard sequences; discard temp
"""
"""All that DISCARD ALL does, except that prepared statements stay: preparing them again is expensive."""
SLOW = 60.0
"""Seconds that the server may always be silent during a slow call, however little patience is left."""
POOL_ANSWER_TIMEOUT = 5.0
"""Seconds to wait for an answer to a statement of the pool itself, when it makes or resets a connection."""
CLOSING = 1.0
"""Seconds to wait for connections that are still being made when the pool is closed."""


class Database:
    """Runs calls on a pool of connections, which the first call opens.

    ``locate`` is the DSN, or returns it when it is needed. With ``reset`` sessions are reset before they are used
    again, for callers that run their own statements.
    """

    def __init__(
        self, locate: str | Callable[[], str], *, pool_size: int = 10, patience: float = 30.0, reset: bool = False
    ) -> None:
        self.patience = patience
        self._resets_sessions = reset
        self._pooled = False
        self._locate = locate
        self._conninfo = ""
        self._pool: ConnectionPool[Connection] | None = None
        self._pool_size = pool_size
        self._lent: set[Connection] = set()
        self._opening = threading.Lock()
        self._closed = False
        self._pid = os.getpid()
        self._parents: object = None
        self._is_checked = False
        self.ahead = 0.0
        self.leading_calls: Callable[[], Sequence[Call[Any]]] = tuple
        """Makes the calls that begin each transaction, such as one that sets a time limit."""

    def another(self, *, pool_size: int, patience: float | None = None) -> Database:
        """Return the same database with a separate pool, whose calls never wait for ours. Sessions are not reset."""
        database = Database(self.dsn, pool_size=pool_size, patience=patience or self.patience)
        database._is_checked, database.ahead = self._is_checked, self.ahead
        database.leading_calls = self.leading_calls
        return database

    @property
    def dsn(self) -> str:
        """The DSN of the database; found now if none was given."""
        if not isinstance(self._locate, str):
            self._locate = self._locate()
        return self._locate

    def connect(self) -> None:
        """Connect, with patience, unless connected."""
        if self._pool is None or self._pid != os.getpid():
            self.run_together([])

    def open(self) -> None:
        """Make the pool. First check that the schema fits, and learn the database's time."""
        with self._opening:
            if self._pool is not None:
                return
            if not isinstance(self._locate, str):
                self._locate = self._locate()
            self._locate = read(self._locate)
            self._conninfo = reachable(self._locate, self.patience)
            if not self._is_checked:
                self._check_schema()
            pool = ConnectionPool(
                self._conninfo,
                connection_class=Connection,
                kwargs={"autocommit": True},
                configure=self._configure,
                reset=self._reset_session if self._resets_sessions else None,
                min_size=0,  # With 1 the pool makes one by itself, and the first call does not wait for that one.
                max_size=self._pool_size,
                open=False,
                reconnect_timeout=self.patience,
            )
            pool.open()
            self._pool = pool
            if self._closed:  # Meanwhile, by another task or thread, which may not have seen the pool.
                self._pool = None
                pool.close(CLOSING)
                raise _closed()

    def close(self) -> None:
        """Close the pool, for good."""
        self._closed = True
        pool, self._pool = self._pool, None
        if self._pid != os.getpid():
            self._parents = pool  # After a fork the connections are the parent's.
        elif pool is not None:
            pool.close(CLOSING)

    @property
    def is_pooled(self) -> bool:
        """True if a pooler is between us and the server; known after the first connection."""
        return self._pooled

    def _configure(self, conn: Connection) -> None:
        conn.answer_timeout = POOL_ANSWER_TIMEOUT
        set_json_loads(msgspec.json.decode, conn)
        cursor = conn.execute("select pg_backend_pid(), current_setting('default_transaction_isolation')")
        pid, isolation = cursor.fetchone() or (0, "")
        self._pooled = pid != conn.info.backend_pid
        if self._pooled:
            # The next statement may reach another backend.
            conn.prepare_threshold = None
        elif isolation != "read committed":
            conn.execute(ISOLATION)

    def _reset_session(self, conn: Connection) -> None:
        conn.row_factory, conn.cursor_factory = tuple_row, psycopg.Cursor
        conn.answer_timeout = POOL_ANSWER_TIMEOUT
        if not self._pooled:  # Behind a pooler the session is not ours.
            conn.execute(RESET_SESSION, prepare=False)

    def _check_schema(self) -> None:
        with translated():
            with self._connect() as conn:
                try:
                    self._check(_send_one(conn, calls.schema.installed(), self.leading_calls()))
                except psycopg.Error as error:
                    raise missing(error) from error

    def check_on(self, conn: TheirConnection) -> None:
        """Check the schema and learn the database's time, once, on a caller's connection."""
        if not self._is_checked:
            self._check(join(conn, calls.schema.installed()))

    def _check(self, installed: Installed) -> None:
        check_fit(installed.version, installed.oldest_client)
        self._learn(installed.now)
        self._is_checked = True

    def _connect(self) -> Connection:
        """Make a connection outside of the pool."""
        try:
            conn = Connection.connect(self._conninfo, autocommit=True)
        except psycopg.OperationalError as error:
            raise refused(error, self._conninfo) from error
        conn.answer_timeout = max(1.0, self.patience)
        return conn

    def learn_time(self) -> None:
        """Learn again how far the database's clock is ahead of ours."""
        self._learn(self.run(calls.schema.now()))

    def recheck(self) -> None:
        """Check the schema and the database's time again before the next enqueue on a caller's connection."""
        self._is_checked = False

    def _learn(self, now: datetime) -> None:
        self.ahead = now.timestamp() - time.time()

    def run(self, call: Call[R], *, patience: float | None = None) -> R:
        """Run a call in its own transaction. Repeat it if the connection is lost and the call is repeatable."""
        repeat = call.repeat or (lambda: call)
        while True:
            try:
                answer: R = self._try(
                    lambda is_first: call if is_first else repeat(),
                    patience,
                    repeatable=call.repeatable,
                    slow=call.slow,
                )
            except DibsError as error:
                if call.cure is None or not _is_of_data(error) or not self.run(call.cure(), patience=patience):
                    raise
            else:
                return answer

    def run_together(self, these: Sequence[Call[Any]]) -> list[Any]:
        """Run calls in one transaction, in order. Repeat all if the connection is lost and all are repeatable.

        A repeat sends the same calls: their ``repeat`` and ``cure`` are not used. With none it only connects.
        """
        repeatable, slow = all(call.repeatable for call in these), any(call.slow for call in these)
        done: list[Any] = self._try(lambda _is_first: iter(these), None, repeatable=repeatable, slow=slow)
        return done

    def run_each(self, make_calls: Callable[[bool], Iterator[Call[Any]]]) -> list[Any]:
        """Run repeatable calls in one transaction. Each is sent as soon as it is made.

        ``make_calls(is_first)`` makes them; ``is_first`` is false if they may have been sent before.
        """
        done: list[Any] = self._try(make_calls, None, repeatable=True, slow=False)
        return done

    def _try(
        self,
        make_calls: Callable[[bool], Call[Any] | Iterator[Call[Any]]],
        patience: float | None,
        *,
        repeatable: bool,
        slow: bool,
    ) -> Any:
        """Make calls and send them; do both again while that is safe and patience is left.

        ``make_calls(is_first)`` returns one call, or several for one transaction.
        """
        end = time.monotonic() + (self.patience if patience is None else patience)
        tries = 0
        is_sent = False
        while True:
            try:
                pool = self._opened()
                asked, is_sent = make_calls(not is_sent), True
                return self._send(pool, asked, end, repeatable=repeatable, slow=slow)
            except (ConnectionLost, IdTaken, ServerError) as error:
                tries += 1
                left = end - time.monotonic()
                is_lost = isinstance(error, ConnectionLost)
                may_repeat = (repeatable or not is_sent) if is_lost else _is_passing(error)
                if left <= 0 or not may_repeat:
                    raise
                time.sleep(min(left, random.uniform(0, 0.05 * 2 ** min(tries, 6))))  # noqa: S311

    def _opened(self) -> ConnectionPool[Connection]:
        pool = self._pool
        if pool is None or self._closed or self._pid != os.getpid():
            pool = self._reopen()
        return pool

    def _send(
        self,
        pool: ConnectionPool[Connection],
        asked: Call[Any] | Iterator[Call[Any]],
        end: float,
        *,
        repeatable: bool,
        slow: bool,
    ) -> Any:
        """Send a call, or several in one transaction, on a connection of the pool."""
        leading = self.leading_calls()
        try:
            conn = pool.getconn(max(end - time.monotonic(), 0.1))
            self._lent.add(conn)
            try:
                conn.answer_timeout = _answer_timeout(
                    end - time.monotonic(), repeatable=repeatable, slow=slow or bool(leading)
                )
                if isinstance(asked, calls.Call):
                    return _send_one(conn, asked, leading)
                return _send_all(conn, asked, leading)
            finally:
                self._lent.discard(conn)
                pool.putconn(conn)
        except (PoolTimeout, PoolClosed) as error:
            raise self._unobtained(error) from error
        except psycopg.Error as error:
            lost = translate(error)
            if isinstance(lost, ConnectionLost) and self._pool is not None:
                self._pool.drain()  # The others are likely lost too, and a check of them might hang.
            raise lost from error

    def _reopen(self) -> ConnectionPool[Connection]:
        if self._closed:
            raise _closed()
        if self._pid != os.getpid():
            # After a fork the connections are the parent's: keep them open, and never close them here.
            self._parents, self._pool, self._opening, self._pid = self._pool, None, threading.Lock(), os.getpid()
            self._lent = set()
        if self._pool is None:
            self.open()
        assert self._pool is not None
        return self._pool

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Begin a transaction on a connection of the pool. It commits if the block does not raise."""
        self.connect()
        pool = self._pool
        assert pool is not None
        try:
            conn = pool.getconn(self.patience)
        except (PoolTimeout, PoolClosed) as error:
            raise self._unobtained(error) from error
        self._lent.add(conn)
        conn.answer_timeout = None  # A handler's own statements may take any time.
        try:
            with conn.transaction():
                for call in self.leading_calls():
                    run_on(conn, call)
                yield conn
        finally:
            self._lent.discard(conn)
            pool.putconn(conn)

    def _unobtained(self, error: PoolTimeout | PoolClosed) -> ConnectionLost:
        """Make the error for a pool without a connection: none can be made, or all are in use."""
        if isinstance(error, PoolTimeout) and len(self._lent) >= self._pool_size:
            return PoolExhausted(
                f"all {self._pool_size} connections of this client are in use: {error}",
                hint="use fewer at once, or allow more: pool_size of a client, --connections of a worker",
            )
        return ConnectionLost(f"no connection to the database: {error}")


def _closed() -> ClientClosed:
    return ClientClosed("this client is closed", hint="make a new one")


def _answer_timeout(left: float, *, repeatable: bool, slow: bool) -> float:
    """Return the seconds of silence to bear when ``left`` is the patience that is left.

    For repeatable calls that is a third, so that they can be repeated twice.
    """
    if slow:
        return max(SLOW, left)
    return max(1.0, left / 3 if repeatable else left)


def _send_one(conn: Connection, call: Call[Any], leading: Sequence[Call[Any]] = ()) -> Any:
    """Send a call: alone, or after leading calls in one transaction."""
    if leading:
        return (_send_all(conn, iter([call]), leading))[0]
    reach("database.before_send")
    answer = call.read(conn.fetch(call.sql, call.args, binary=call.binary))
    reach("database.after_send")
    return answer


def _send_all(conn: Connection, these: Iterator[Call[Any]], leading: Sequence[Call[Any]]) -> list[Any]:
    begin = list(islice(these, 2))
    if not begin:
        return []
    if len(begin) == 1 and not leading:
        return [_send_one(conn, begin[0])]
    reach("database.before_send")
    done = (_run_together(conn, chain(leading, begin, these)))[len(leading) :]
    reach("database.after_send")
    return done


def _run_together(conn: Connection, these: Iterable[Call[Any]]) -> list[Any]:
    """Run calls in one transaction. They may come from a generator, which makes one while the server does others."""
    started: list[tuple[Callable[[Any], Any], psycopg.Cursor[Any]]] = []
    with conn.transaction(), conn.pipeline():
        for call in these:
            cursor = conn.cursor(row_factory=tuple_row)
            started.append((call.read, cursor.execute(call.sql, call.args, binary=call.binary)))
        return [read(cursor.fetchall()) for read, cursor in started]


def _is_of_data(error: DibsError) -> bool:
    """Return True if the server met data that it cannot read or write."""
    return (error.sqlstate or "")[:2] in {"22", "54"}


def _is_passing(error: DibsError) -> bool:
    """Return True if the call is likely to succeed when it is repeated."""
    return isinstance(error, IdTaken) or error.sqlstate in {"40P01", "40001"}
