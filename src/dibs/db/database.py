# Written by tools/unasync.py from database_async.py: change that and run `make sync`.
"""A database of dibs: a pool, the schema check, and running calls with reconnection."""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import psycopg
from psycopg.rows import tuple_row
from psycopg.types.json import set_json_loads
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from dibs.db import calls
from dibs.db.adapters.client import join, run_on
from dibs.db.schema import check_fit, missing
from dibs.db.translate import translate, translated
from dibs.errors import ClientClosed, ConnectionLost, DibsError, IdOutOfRange, IdTaken, ServerError
from dibs.ids import IdMaker
from dibs.runtime.points import reach
from dibs.states import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from uuid import UUID

    from dibs.db.adapters import detect
    from dibs.db.calls import Call
    from dibs.job import Enqueued, NewJob

R = TypeVar("R")
Connection = psycopg.Connection[Any]

CHUNK = 1000
"""How many jobs one statement of a bulk enqueue carries."""


class Database:
    """Runs calls on a pool of connections; opened by the first call.

    ``locate`` is the DSN, or finds it when it is needed: making a database connects to nothing.
    """

    def __init__(self, locate: str | Callable[[], str], *, pool_size: int = 10, patience: float = 30.0) -> None:
        self.patience = patience
        self._locate = locate
        self._pool: ConnectionPool[Connection] | None = None
        self._pool_size = pool_size
        self._opening = threading.Lock()
        self._closed = False
        self._pid = os.getpid()
        self._parents: object = None
        self._ids = IdMaker()
        self._is_known = False

    def another(self, *, pool_size: int) -> Database:
        """The same database with a pool of its own, where nothing waits for what is done here."""
        database = Database(self.dsn, pool_size=pool_size, patience=self.patience)
        database._ids, database._is_known = self._ids, True
        return database

    @property
    def dsn(self) -> str:
        """Where the database is; known once connected, or if it was given."""
        if not isinstance(self._locate, str):
            raise DibsError("where the database is will be known after the first call")
        return self._locate

    def connect(self) -> None:
        """Connect, with patience, unless connected."""
        if self._pool is None or self._pid != os.getpid():
            self._persist(lambda _: iter(()))

    def open(self) -> None:
        """Connect, check that the schema fits, and learn the database's time."""
        with self._opening:
            if self._pool is not None:
                return
            if not isinstance(self._locate, str):
                self._locate = self._locate()
            if not self._is_known:
                self._check_schema()
            pool = ConnectionPool(
                self.dsn,
                kwargs={"autocommit": True},
                configure=_configure,
                min_size=1,
                max_size=self._pool_size,
                open=False,
                reconnect_timeout=self.patience,
            )
            pool.open()
            self._pool = pool
        if not self._is_known:
            self.learn_time()
            self._is_known = True

    def close(self) -> None:
        """Close the pool, for good."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _check_schema(self) -> None:
        with translated():
            with psycopg.Connection.connect(self.dsn, autocommit=True) as conn:
                try:
                    version, _ = run_on(conn, calls.version())
                except psycopg.Error as error:
                    raise missing(error) from error
                check_fit(version)

    def learn_time(self) -> None:
        """Learn how far the database's clock is ahead of ours, for the ids we make."""
        now = self.run(calls.now())
        self._ids = IdMaker(now.timestamp() - time.time())

    def run(self, call: Call[R]) -> R:
        """Run a call in a transaction of its own; repeat it if the connection is lost and the verb bears that."""
        return (self._persist(lambda _: iter([call]), again=call.again))[0]

    def run_together(self, these: Sequence[Call[Any]]) -> list[Any]:
        """Run calls in one transaction, in order; repeat all if the connection is lost and the verbs bear that."""
        return self._persist(lambda _: iter(these), again=all(call.again for call in these))

    def _persist(self, attempt: Callable[[int], Iterator[Call[R]]], *, again: bool = True) -> list[R]:
        end = time.monotonic() + self.patience
        tries = 0
        while True:
            try:
                return self._run_all(attempt(tries), end)
            except (ConnectionLost, IdTaken, ServerError) as error:
                tries += 1
                left = end - time.monotonic()
                if left <= 0 or not (again if isinstance(error, ConnectionLost) else _passing(error)):
                    raise
                time.sleep(min(left, random.uniform(0, 0.05 * 2 ** min(tries, 6))))  # noqa: S311

    def _run_all(self, these: Iterator[Call[R]], end: float) -> list[R]:
        if self._closed:
            raise ClientClosed("this client is closed", hint="make a new one")
        if self._pid != os.getpid():
            # Forked: the connections are the parent's. They are left as they are, and never closed from here.
            self._parents, self._pool, self._opening, self._pid = self._pool, None, threading.Lock(), os.getpid()
        if self._pool is None:
            self.open()
        assert self._pool is not None
        try:
            with self._pool.connection(timeout=max(end - time.monotonic(), 0.1)) as conn:
                return _run_each(conn, these)
        except (PoolTimeout, PoolClosed) as error:
            raise ConnectionLost(f"no connection to the database: {error}") from error
        except psycopg.Error as error:
            told = translate(error)
            if isinstance(told, ConnectionLost) and self._pool is not None:
                self._pool.check()
            raise told from error

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A connection of the pool in a transaction, which commits when the block ends well."""
        self.connect()
        assert self._pool is not None
        try:
            with self._pool.connection(timeout=self.patience) as conn, conn.transaction():
                yield conn
        except (PoolTimeout, PoolClosed) as error:
            raise ConnectionLost(f"no connection to the database: {error}") from error

    def enqueue(self, jobs: Sequence[NewJob], conn: detect.Connection | None = None) -> list[Enqueued]:
        """Put jobs in under ids made here, so that repeating after a lost answer adds nothing."""
        self.connect()
        try:
            return self._enqueue(jobs, conn)
        except IdOutOfRange:
            if any(job.id is not None for job in jobs):
                raise
            self.learn_time()
            if conn is not None:
                raise
            return self._enqueue(jobs, conn)

    def _enqueue(self, jobs: Sequence[NewJob], conn: detect.Connection | None) -> list[Enqueued]:
        made = iter(self._ids.make(sum(job.id is None for job in jobs)))
        ids: list[UUID] = [job.id or next(made) for job in jobs]
        own = all(job.id is None for job in jobs)
        keyed = any(job.has_key for job in jobs)

        def chunks(tries: int) -> Iterator[Call[list[Enqueued]]]:
            fresh = own and tries == 0
            # Two jobs of one key are told apart from a repeat of both only if they come in one statement.
            size = CHUNK if fresh or not keyed else max(len(jobs), 1)
            for n in range(0, len(jobs), size):
                yield calls.enqueue_many(jobs[n : n + size], ids[n : n + size], fresh=fresh)

        reach("enqueue.before_send")
        done = self._persist(chunks) if conn is None else [join(conn, call) for call in chunks(0)]
        reach("enqueue.after_send")
        # A repeat that finds the first try's job has done what was asked.
        return [
            type(e)(id, Answer.ENQUEUED) if own and e.outcome is Answer.DUPLICATE and e.id == id else e
            for e, id in zip((e for part in done for e in part), ids, strict=True)
        ]


def _run_each(conn: Connection, these: Iterator[Call[R]]) -> list[R]:
    first, second = next(these, None), next(these, None)
    if first is None:
        return []
    reach("database.before_send")
    together = None if second is None else itertools.chain((first, second), these)
    done = [run_on(conn, first)] if together is None else _run_together(conn, together)
    reach("database.after_send")
    return done


def _run_together(conn: Connection, these: Iterator[Call[R]]) -> list[R]:
    """Run several calls in one transaction: the next is made while the server works on the last."""
    started: list[tuple[Call[R], psycopg.Cursor[Any]]] = []
    with conn.transaction(), conn.pipeline():
        for call in these:
            cursor = conn.cursor(row_factory=tuple_row)
            started.append((call, cursor.execute(call.sql, call.args, binary=call.binary)))
        return [call.read(cursor.fetchall()) for call, cursor in started]


def _passing(error: DibsError) -> bool:
    """Whether the same call may well succeed when it is simply repeated."""
    return isinstance(error, IdTaken) or error.sqlstate in {"40P01", "40001"}


def _configure(conn: Connection) -> None:
    set_json_loads(msgspec.json.decode, conn)
    cursor = conn.execute("select pg_backend_pid(), current_setting('default_transaction_isolation')")
    pid, isolation = cursor.fetchone() or (0, "")
    if pid != conn.info.backend_pid:
        # A pooler is between us and the server: the next statement may reach another backend.
        conn.prepare_threshold = None
    elif isolation != "read committed":
        conn.execute("set default_transaction_isolation = 'read committed'")
