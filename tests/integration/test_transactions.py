"""``context().transaction(conn)``: a handler's writes and the completion are one commit, on any connection."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from django.db import connection
from psycopg.pq import TransactionStatus
from psycopg_pool import PoolTimeout
from sqlalchemy.ext import asyncio as sa_async
from sqlalchemy.orm import Session

import dibs
from dibs.client.context import Context
from dibs.db.database_async import AsyncDatabase
from tests.integration.test_adapters import connect_django, django_settings, url  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

WRITE = "insert into effect values (%s)"


@contextmanager
def by_psycopg(dsn: str) -> Iterator[Any]:
    with psycopg.connect(dsn) as conn:
        yield conn


@contextmanager
def by_connection(dsn: str) -> Iterator[Any]:
    engine = sa.create_engine(url(dsn, "psycopg"))
    try:
        with engine.connect() as conn:
            yield conn
    finally:
        engine.dispose()


@contextmanager
def by_session(dsn: str) -> Iterator[Any]:
    engine = sa.create_engine(url(dsn, "psycopg"))
    try:
        with Session(engine) as session:
            yield session
    finally:
        engine.dispose()


@asynccontextmanager
async def by_psycopg_async(dsn: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        yield conn


@asynccontextmanager
async def by_asyncpg(dsn: str) -> AsyncIterator[Any]:
    conn = await asyncpg.connect(dsn)
    try:
        yield conn
    finally:
        await conn.close()


@asynccontextmanager
async def by_async_session(dsn: str) -> AsyncIterator[Any]:
    engine = sa_async.create_async_engine(url(dsn, "asyncpg"))
    try:
        async with sa_async.AsyncSession(engine) as session:
            yield session
    finally:
        await engine.dispose()


SYNC: dict[str, Callable[[str], AbstractContextManager[Any]]] = {
    "psycopg": by_psycopg,
    "sqlalchemy-connection": by_connection,
    "sqlalchemy-session": by_session,
}
ASYNC: dict[str, Callable[[str], AbstractAsyncContextManager[Any]]] = {
    "psycopg-async": by_psycopg_async,
    "asyncpg": by_asyncpg,
    "sqlalchemy-async-session": by_async_session,
}


def write(conn: Any, n: int) -> Any:
    """Write one row; awaited where the connection is async."""
    if isinstance(conn, psycopg.Connection | psycopg.AsyncConnection):
        return conn.execute(WRITE, (n,))
    if type(conn).__module__.startswith("asyncpg"):
        return conn.execute("insert into effect values ($1)", n)
    return conn.execute(sa.text("insert into effect values (:n)"), {"n": n})


@pytest.fixture(params=[*SYNC, *ASYNC])
def app(request: pytest.FixtureRequest, dsn: str, db: psycopg.Connection[Any]) -> Iterator[dibs.App]:
    """An app with a task that writes through its kind of connection, and then does what it is told."""
    db.execute("create table public.effect (n integer)")
    app = dibs.App(dsn)

    def act(what: str) -> None:
        here = dibs.context()
        if what == "fail" and here.attempt == 1:
            raise ValueError("after the write")
        if what == "lose":
            app.client.fail(here.job, "taken away", delay=3600)
        here.result = what

    if request.param in SYNC:

        @app.task(name="write")
        def sync_task(n: int, what: str) -> None:
            with SYNC[request.param](dsn) as conn, dibs.context().transaction(conn) as same:
                write(same, n)
                act(what)

    else:

        @app.task(name="write")
        async def async_task(n: int, what: str) -> None:
            async with ASYNC[request.param](dsn) as conn, dibs.context().transaction(conn) as same:
                await write(same, n)
                act(what)

    yield app
    app.close()


def test_the_writes_and_the_completion_are_one_commit(app: dibs.App, db: psycopg.Connection[Any]) -> None:
    task: Any = app.tasks["write"].using(backoff=dibs.types.Backoff("constant", (0,)))
    made = [task.enqueue(n, what) for n, what in enumerate(["go", "fail", "lose"])]
    app.run_worker(drain=True)
    assert [job.wait(10) for job in made[:2]] == ["go", "fail"]
    assert made[2].status().state is dibs.State.SCHEDULED
    assert db.execute("select n from public.effect order by n").fetchall() == [(0,), (1,)], "each once, or not at all"


def test_a_transaction_that_is_open_already_is_refused(dsn: str, client: dibs.Client) -> None:
    client.enqueue("q", "k")
    [job] = client.claim("q")
    with psycopg.connect(dsn) as conn:
        conn.execute("select 1")
        with pytest.raises(dibs.InvalidArgument, match="open already"), Context(job).transaction(conn):
            pass
    with psycopg.connect(dsn) as conn, Context(job).transaction(conn):
        conn.execute("select 1")
    assert client.status(job.id).state is dibs.State.SUCCEEDED


def cut_off(db: psycopg.Connection[Any], conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    db.execute("select pg_terminate_backend(%s, 10000)", (conn.info.backend_pid,))


async def test_a_lost_connection_is_told_as_such(dsn: str, db: psycopg.Connection[Any], client: dibs.Client) -> None:
    client.enqueue("q", "k")
    [job] = client.claim("q")
    with psycopg.connect(dsn, autocommit=True) as conn:
        cut_off(db, conn)
        with pytest.raises(psycopg.OperationalError):
            conn.execute("select 1")
        with pytest.raises(dibs.ConnectionLost), Context(job).transaction(conn):
            pass
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as other:
        cut_off(db, other)
        with pytest.raises(psycopg.OperationalError):
            await other.execute("select 1")
        with pytest.raises(dibs.ConnectionLost):
            async with Context(job).transaction(other):
                pass


def test_django_without_autocommit_is_refused(dsn: str, client: dibs.Client, django_settings: None) -> None:  # noqa: F811
    client.enqueue("q", "k")
    [job] = client.claim("q")
    connect_django(dsn)
    connection.set_autocommit(False)
    with pytest.raises(dibs.InvalidArgument, match="open already"), Context(job).transaction(connection):
        pass
    connection.rollback()
    connection.close()


async def test_a_handlers_own_pool_without_a_free_connection_is_not_ours(dsn: str) -> None:
    database = AsyncDatabase(dsn, pool_size=1)
    with pytest.raises(PoolTimeout, match="theirs"):
        async with database.transaction():
            raise PoolTimeout("theirs")
    async with database.transaction() as conn:
        assert conn.info.transaction_status is TransactionStatus.INTRANS
    await database.close()


def write_and_fail(here: Context) -> None:
    with here.transaction(connection):
        connection.cursor().execute("insert into public.effect values (1)")
        raise ValueError("after the write")


def test_django(dsn: str, client: dibs.Client, django_settings: None) -> None:  # noqa: F811
    client.enqueue_many(dibs.NewJob(queue="q", kind="k") for _ in range(2))
    kept, undone = client.claim("q", 2)

    connect_django(dsn)
    with Context(kept).transaction(connection), connection.cursor() as cursor:
        cursor.execute("create table public.effect (n integer)")
    with pytest.raises(ValueError, match="after"):
        write_and_fail(Context(undone))
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from public.effect")
        assert cursor.fetchone() == (0,)
    connection.close()
    assert [s.state for s in client.status_many([kept.id, undone.id])] == [dibs.State.SUCCEEDED, dibs.State.RUNNING]
