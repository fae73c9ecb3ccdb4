"""``conn=``: the verbs in the caller's transaction, on the connections of every library that is taken."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import subprocess
import sys
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import asyncpg
import django
import msgspec
import psycopg
import psycopg_pool
import pytest
import sqlalchemy as sa
from django.conf import settings
from django.db import connection, connections, transaction
from django.utils.functional import empty
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.ext import asyncio as sa_async
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import dibs
from dibs.db import calls
from dibs.db.adapters.asyncpg import numbered
from dibs.operation import StepArgs
from dibs.types import JobFilter, StillDead

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

    from tests.servers import Databases

_numbers = itertools.count(1)

Begin: TypeAlias = "Callable[[str, bool], AbstractAsyncContextManager[Any]]"


def url(dsn: str, driver: str) -> str:
    return dsn.replace("postgresql://", f"postgresql+{driver}://")


@contextmanager
def engine_of(dsn: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(url(dsn, "psycopg"))
    yield engine
    engine.dispose()


@asynccontextmanager
async def async_engine_of(dsn: str, driver: str) -> AsyncIterator[sa_async.AsyncEngine]:
    engine = sa_async.create_async_engine(url(dsn, driver))
    yield engine
    await engine.dispose()


# Each begins a transaction on its kind of connection, and commits it in the end, or rolls it back.


@asynccontextmanager
async def with_psycopg(dsn: str, keep: bool) -> AsyncIterator[Any]:
    with psycopg.connect(dsn) as conn, conn.transaction(force_rollback=not keep):
        yield conn


@asynccontextmanager
async def with_sqlalchemy_connection(dsn: str, keep: bool) -> AsyncIterator[Any]:
    with engine_of(dsn) as engine, engine.connect() as conn:
        yield conn
        (conn.commit if keep else conn.rollback)()


@asynccontextmanager
async def with_sqlalchemy_session(dsn: str, keep: bool) -> AsyncIterator[Any]:
    with engine_of(dsn) as engine, Session(engine) as session:
        yield session
        (session.commit if keep else session.rollback)()


@asynccontextmanager
async def with_sqlalchemy_scoped_session(dsn: str, keep: bool) -> AsyncIterator[Any]:
    with engine_of(dsn) as engine:
        session = scoped_session(sessionmaker(engine))
        yield session
        (session.commit if keep else session.rollback)()
        session.remove()


def connect_django(dsn: str) -> None:
    where = conninfo_to_dict(dsn)
    connections.settings["default"].update(
        NAME=where["dbname"], USER=where["user"], HOST=where["host"], PORT=where["port"]
    )
    connections["default"] = connections.create_connection("default")


@asynccontextmanager
async def with_django(dsn: str, keep: bool) -> AsyncIterator[Any]:
    connect_django(dsn)
    with transaction.atomic():
        yield connection
        if not keep:
            transaction.set_rollback(True)
    connection.close()


@asynccontextmanager
async def with_psycopg_async(dsn: str, keep: bool) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(dsn) as conn, conn.transaction(force_rollback=not keep):
        yield conn


@asynccontextmanager
async def begun(conn: Any, keep: bool) -> AsyncIterator[Any]:
    theirs = conn.transaction()
    await theirs.start()
    yield conn
    await (theirs.commit if keep else theirs.rollback)()


@asynccontextmanager
async def with_asyncpg(dsn: str, keep: bool) -> AsyncIterator[Any]:
    conn = await asyncpg.connect(dsn)
    async with begun(conn, keep):
        yield conn
    await conn.close()


@asynccontextmanager
async def with_asyncpg_pool(dsn: str, keep: bool) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool, pool.acquire() as conn, begun(conn, keep):
        yield conn


def with_sqlalchemy_async_connection(driver: str) -> Begin:
    @asynccontextmanager
    async def begin(dsn: str, keep: bool) -> AsyncIterator[Any]:
        async with async_engine_of(dsn, driver) as engine, engine.connect() as conn:
            yield conn
            await (conn.commit if keep else conn.rollback)()

    return begin


def with_sqlalchemy_async_session(driver: str, scoped: bool = False) -> Begin:
    @asynccontextmanager
    async def begin(dsn: str, keep: bool) -> AsyncIterator[Any]:
        async with async_engine_of(dsn, driver) as engine:
            maker = sa_async.async_sessionmaker(engine)
            session = sa_async.async_scoped_session(maker, scopefunc=asyncio.current_task) if scoped else maker()
            yield session
            await (session.commit if keep else session.rollback)()
            await session.close()

    return begin


SYNC: dict[str, Begin] = {
    "psycopg": with_psycopg,
    "sqlalchemy-connection": with_sqlalchemy_connection,
    "sqlalchemy-session": with_sqlalchemy_session,
    "sqlalchemy-scoped-session": with_sqlalchemy_scoped_session,
    "django": with_django,
}
ASYNC: dict[str, Begin] = {
    "psycopg-async": with_psycopg_async,
    "asyncpg": with_asyncpg,
    "asyncpg-pool": with_asyncpg_pool,
    "sqlalchemy-async-connection-psycopg": with_sqlalchemy_async_connection("psycopg"),
    "sqlalchemy-async-connection-asyncpg": with_sqlalchemy_async_connection("asyncpg"),
    "sqlalchemy-async-session-psycopg": with_sqlalchemy_async_session("psycopg"),
    "sqlalchemy-async-session-asyncpg": with_sqlalchemy_async_session("asyncpg"),
    "sqlalchemy-async-scoped-session": with_sqlalchemy_async_session("asyncpg", scoped=True),
}


class Stage:
    """A client and the connections of one kind; the verbs are awaited, whichever client it is."""

    def __init__(self, client: Any, dsn: str, begin: Begin) -> None:
        self._client, self._dsn, self._begin = client, dsn, begin

    def begin(self, *, keep: bool) -> AbstractAsyncContextManager[Any]:
        return self._begin(self._dsn, keep)

    async def do(self, verb: str, *args: Any, **options: Any) -> Any:
        answer = getattr(self._client, verb)(*args, **options)
        return await answer if inspect.isawaitable(answer) else answer


Play: TypeAlias = "Callable[[Callable[[Stage], Coroutine[Any, Any, None]]], None]"


@pytest.fixture(scope="module")
def dsn(databases: Databases, template: str) -> Iterator[str]:
    """One database for all of these tests; each has its own queue."""
    with databases.copy(template) as dsn:
        yield dsn


@pytest.fixture
def queue() -> str:
    """A queue of this test alone."""
    return f"mail-{next(_numbers)}"


@pytest.fixture(scope="module", autouse=True)
def django_settings() -> Iterator[None]:
    """Django's settings of this module alone; a page of the docs makes its own in the same process."""
    before = settings._wrapped
    settings._wrapped = empty
    database = {"ENGINE": "django.db.backends.postgresql", "NAME": "none"}
    settings.configure(DATABASES={"default": database}, LOGGING_CONFIG=None)
    django.setup()
    forget_connections()
    yield
    forget_connections()
    settings._wrapped = before


def forget_connections() -> None:
    connections.__dict__.pop("settings", None)
    connections._settings = None
    if hasattr(connections._connections, "default"):
        del connections["default"]


@pytest.fixture(params=[*SYNC, *ASYNC])
def play(request: pytest.FixtureRequest, dsn: str) -> Play:
    """Plays a scene with one kind of connection: in an event loop for the async ones, else without.

    The client cannot reach the database: with ``conn=`` it opens no connection.
    """
    nowhere = "postgresql://nobody@127.0.0.1:1/none"

    def run(scene: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
        if request.param in ASYNC:
            asyncio.run(scene(Stage(dibs.AsyncClient(nowhere, patience=0.1), dsn, ASYNC[request.param])))
            return
        # Nothing in it waits, so it runs to its end at once; Django refuses to work inside of an event loop.
        with pytest.raises(StopIteration):
            scene(Stage(dibs.Client(nowhere, patience=0.1), dsn, SYNC[request.param])).send(None)

    return run


def test_enqueue_commits_and_rolls_back(play: Play, client: dibs.Client, queue: str) -> None:
    made: list[dibs.types.Enqueued] = []

    async def scene(stage: Stage) -> None:
        for keep in (True, False):
            async with stage.begin(keep=keep) as conn:
                made.append(await stage.do("enqueue", queue, "welcome", {"ä'%s": [1, None]}, delay=3600.5, conn=conn))
                assert client.status(made[-1].id).state is dibs.State.UNKNOWN

    play(scene)
    assert [s.state for s in client.status_many([m.id for m in made])] == [dibs.State.SCHEDULED, dibs.State.UNKNOWN]
    shown = client.show(made[0].id)
    assert shown
    assert shown["payload"] == {"ä'%s": [1, None]}


def test_bulk_enqueue_commits_and_rolls_back(play: Play, client: dibs.Client, queue: str) -> None:
    kept: list[dibs.types.Enqueued] = []

    async def scene(stage: Stage) -> None:
        for keep in (False, True):
            async with stage.begin(keep=keep) as conn:
                jobs = (dibs.NewJob(queue=queue, kind="n", payload=n) for n in range(2500))
                kept[:] = await stage.do("enqueue_many", jobs, conn=conn)

    play(scene)
    claimed = client.claim(queue, 5000)
    assert [job.id for job in claimed] == [k.id for k in kept]
    assert [job.payload for job in claimed] == list(range(2500))


def test_complete_commits_and_rolls_back(play: Play, client: dibs.Client, queue: str) -> None:
    client.enqueue_many(dibs.NewJob(queue=queue, kind="welcome") for _ in range(2))
    done, undone = client.claim(queue, 2)
    follow_ups = [dibs.NewJob(queue=f"{queue}-next", kind="k", payload=b"\x00\xff")]

    async def scene(stage: Stage) -> None:
        async with stage.begin(keep=True) as conn:
            assert await stage.do("complete", done, {"sent": 1}, follow_ups=follow_ups, conn=conn) == "ok"
        async with stage.begin(keep=False) as conn:
            assert await stage.do("complete", undone, follow_ups=follow_ups, conn=conn) == "ok"
        async with stage.begin(keep=True) as conn:
            assert await stage.do("complete", done, conn=conn) == "already"

    play(scene)
    assert [s.state for s in client.status_many([done.id, undone.id])] == [dibs.State.SUCCEEDED, dibs.State.RUNNING]
    shown = client.show(done.id)
    assert shown
    assert shown["attempts"][0]["result"] == {"sent": 1}
    assert [job.content for job in client.claim(f"{queue}-next", 10)] == [b"\x00\xff"]


def test_duplicates_are_told_and_bytes_arrive(play: Play, client: dibs.Client, queue: str) -> None:
    first = client.enqueue(queue, "digest", "first", dedup_key="d:42")
    jobs = [
        dibs.NewJob(queue=queue, kind="digest", payload="second", dedup_key="d:42"),
        dibs.NewJob(queue=queue, kind="raw", payload=b"\x00'%s\xff"),
    ]

    async def scene(stage: Stage) -> None:
        async with stage.begin(keep=True) as conn:
            twice, raw = await stage.do("enqueue_many", jobs, conn=conn)
        assert (twice.id, twice.outcome, raw.outcome) == (first.id, "duplicate", "enqueued")
        assert type(twice.id) is UUID

    play(scene)
    assert [job.content for job in client.claim(queue, 10)] == ["first", b"\x00'%s\xff"]


def test_errors_are_ours(play: Play, client: dibs.Client, queue: str) -> None:
    client.queues.set(queue, payload_limit=1000)
    client.enqueue(queue, "welcome")
    [job] = client.claim(queue)
    stranger = msgspec.structs.replace(job, _token=UUID(int=1).bytes)

    async def scene(stage: Stage) -> None:
        async with stage.begin(keep=False) as conn:
            with pytest.raises(dibs.errors.InvalidPolicy, match="expected a priority from -100 to 100") as refused:
                await stage.do("enqueue", queue, "welcome", priority=999, conn=conn)
            assert refused.value.__cause__ is not None
            with pytest.raises(dibs.errors.ServerError, match="current transaction is aborted") as aborted:
                await stage.do("enqueue", queue, "welcome", conn=conn)
            assert aborted.value.sqlstate == "25P02"
        async with stage.begin(keep=False) as conn:
            with pytest.raises(dibs.errors.PayloadTooLarge) as too_large:
                await stage.do("enqueue", queue, "welcome", "x" * 2000, conn=conn)
            assert too_large.value.hint
        async with stage.begin(keep=False) as conn:
            with pytest.raises(dibs.LeaseLost):
                await stage.do("complete", stranger, conn=conn)

    play(scene)


def test_a_lost_connection_is_told_as_such(play: Play, db: psycopg.Connection[Any], queue: str) -> None:
    ended: list[bool] = []
    told: list[bool] = []

    async def scene(stage: Stage) -> None:
        with suppress(Exception):  # the transaction cannot end in peace, whichever library it is of
            async with stage.begin(keep=False) as conn:
                await stage.do("enqueue", queue, "welcome", conn=conn)
                ended.extend(
                    row[0]
                    for row in db.execute(
                        "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
                        " where datname = current_database() and state = 'idle in transaction'"
                    )
                )
                with pytest.raises(dibs.ConnectionLost):
                    await stage.do("enqueue", queue, "welcome", conn=conn)
                told.append(True)
        connections.close_all()

    play(scene)
    assert ended == told == [True]


# What cannot be used is refused, with what to do instead.


async def test_the_async_client_refuses_sync_connections(dsn: str, queue: str) -> None:
    async with dibs.AsyncClient(dsn) as client:
        given: list[Any] = [connection, connections["default"]]
        with (
            psycopg.connect(dsn) as conn,
            engine_of(dsn) as engine,
            engine.connect() as other,
            Session(engine) as session,
        ):
            for theirs in (*given, conn, other, session):
                with pytest.raises(dibs.InvalidArgument, match=r"dibs\.AsyncClient cannot use") as refused:
                    await client.enqueue(queue, "welcome", conn=theirs)
                assert type(theirs).__qualname__ in refused.value.message
                assert "make the call on a dibs.Client" in str(refused.value.hint)
                assert "an asyncpg Connection" in str(refused.value.hint)


def test_the_client_refuses_async_connections(dsn: str, client: dibs.Client, queue: str) -> None:
    async def all_refused() -> None:
        for begin in ASYNC.values():
            async with begin(dsn, False) as conn:
                with pytest.raises(dibs.InvalidArgument, match=r"dibs\.Client cannot use") as refused:
                    client.enqueue(queue, "welcome", conn=conn)
                assert type(conn).__qualname__ in refused.value.message
                assert "await the call on a dibs.AsyncClient" in str(refused.value.hint)

    asyncio.run(all_refused())


async def test_what_is_no_connection_is_refused(dsn: str, queue: str) -> None:
    ways: dict[Any, str] = {
        psycopg_pool.ConnectionPool(dsn, open=False): "pool.connection()",
        psycopg_pool.AsyncConnectionPool(dsn, open=False): "pool.connection()",
        asyncpg.create_pool(dsn): "pool.acquire()",
        sa.create_engine(url(dsn, "psycopg")): "engine.begin()",
        sa_async.create_async_engine(url(dsn, "asyncpg")): "engine.begin()",
        sessionmaker(): "sessions.begin()",
        sa_async.async_sessionmaker(): "sessions.begin()",
        dsn: "a psycopg",
        7: "a psycopg",
    }
    async with dibs.AsyncClient(dsn) as async_client:
        with dibs.Client(dsn) as client:
            for thing, way in ways.items():
                with pytest.raises(dibs.InvalidArgument) as refused:
                    client.enqueue(queue, "welcome", conn=thing)
                assert way in str(refused.value.hint)
                with pytest.raises(dibs.InvalidArgument) as refused:
                    await async_client.enqueue(queue, "welcome", conn=thing)
                assert way in str(refused.value.hint)


def test_other_databases_are_refused(client: dibs.Client, queue: str) -> None:
    engine = sa.create_engine("sqlite://")
    with engine.connect() as conn, pytest.raises(dibs.InvalidArgument, match="sqlite") as refused:
        client.enqueue(queue, "welcome", conn=conn)
    assert "postgresql+psycopg" in str(refused.value.hint)
    engine.dispose()
    connections.settings["other"] = connections.settings["default"] | {"ENGINE": "django.db.backends.sqlite3"}
    with pytest.raises(dibs.InvalidArgument, match="sqlite") as refused:
        client.enqueue(queue, "welcome", conn=connections["other"])
    assert "django.db.backends.postgresql" in str(refused.value.hint)
    del connections.settings["other"], connections["other"]


def test_a_closed_sync_connection_is_refused(dsn: str, client: dibs.Client, queue: str) -> None:
    with psycopg.connect(dsn) as conn, engine_of(dsn) as engine, engine.connect() as other:
        conn.close()
        other.close()
        for closed in (conn, other):
            with pytest.raises(dibs.InvalidArgument, match="closed"):
                client.enqueue(queue, "welcome", conn=closed)


async def test_a_closed_async_connection_is_refused(dsn: str, queue: str) -> None:
    async with dibs.AsyncClient(dsn) as client:

        async def refused(conn: Any, why: str) -> None:
            with pytest.raises(dibs.InvalidArgument, match=why):
                await client.enqueue(queue, "welcome", conn=conn)

        theirs = await psycopg.AsyncConnection.connect(dsn)
        await theirs.close()
        await refused(theirs, "closed")
        async with asyncpg.create_pool(dsn, min_size=1, max_size=1) as pool:
            async with pool.acquire() as conn:
                pass
            await refused(conn, "released back to the pool")
        conn = await asyncpg.connect(dsn)
        await conn.close()
        await refused(conn, "closed")
        async with async_engine_of(dsn, "asyncpg") as engine:
            await refused(engine.connect(), "not been started")
            async with engine.connect() as other:
                await other.close()
            await refused(other, "closed")


def test_django_says_what_it_cannot_do(dsn: str, client: dibs.Client, queue: str) -> None:
    async def in_a_loop() -> None:
        with pytest.raises(dibs.InvalidArgument, match="async context"):
            client.enqueue(queue, "welcome", conn=connection)

    async def closed_inside() -> None:
        async with with_django(dsn, keep=False) as conn:
            conn.close()
            with pytest.raises(dibs.InvalidArgument, match="closed"):
                client.enqueue(queue, "welcome", conn=conn)

    asyncio.run(in_a_loop())
    with pytest.raises(StopIteration):
        closed_inside().send(None)


# What else may come along.


async def test_without_a_transaction_each_statement_commits(dsn: str, queue: str) -> None:
    conn = await asyncpg.connect(dsn)
    async with dibs.AsyncClient(dsn) as client:
        made = await client.enqueue(queue, "welcome", conn=conn)
        assert (await client.status(made.id)).state is dibs.State.READY
    await conn.close()


async def test_codecs_of_the_callers_own_change_nothing(dsn: str, queue: str) -> None:
    conn = await asyncpg.connect(dsn)
    await conn.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    async with dibs.AsyncClient(dsn) as client:
        made = await client.enqueue(queue, "welcome", {"user": 42}, conn=conn)
        [job] = await client.claim(queue)
        assert (job.id, job.payload) == (made.id, {"user": 42})
        assert await client.complete(job, {"sent": [1]}, conn=conn) == "ok"
        shown = await client.show(job.id)
        assert shown
        assert shown["attempts"][0]["result"] == {"sent": [1]}
    await conn.close()


async def test_every_kind_of_argument_reaches_the_server_by_asyncpg(dsn: str, queue: str) -> None:
    conn = await asyncpg.connect(dsn)
    async with dibs.AsyncClient(dsn) as client:
        made = await client.enqueue(queue, "welcome")
        [job] = await client._run(calls.jobs.claim([queue], 1, None, 60), conn)
        assert (job.id, type(job.token)) == (made.id, UUID)
        [renewed] = await client._run(calls.jobs.extend_many([job], 60, [{"done": 1}]), conn)
        assert renewed.answer == "ok"
        [failed] = await client._run(calls.jobs.fail_many([job], ["no"], [False], [2.5]), conn)
        assert (failed.answer, failed.state) == ("ok", "scheduled")
        assert await client._run(calls.jobs.cancel(job.id, "enough"), conn) == "cancelled"
        held = await client.enqueue(queue, "welcome", dedup_key="d")
        await client.cancel(held.id)
        other = await client.enqueue(queue, "welcome", dedup_key="d")
        chosen: JobFilter = {"ids": [job.id, held.id, other.id]}
        step = await client._run(calls.operate.retry(chosen, 0.5, 2.5, True, StepArgs(9, None, None, False)), conn)
        assert (step.matched, step.done, step.next) == (2, 1, None)
        assert step.refused == (StillDead(held.id, dibs.Answer.DUPLICATE),)
    await conn.close()


async def test_the_sync_client_inside_of_run_sync(dsn: str, client: dibs.Client, queue: str) -> None:
    async with async_engine_of(dsn, "asyncpg") as engine, sa_async.AsyncSession(engine) as session:
        made = await session.run_sync(lambda theirs: client.enqueue(queue, "welcome", conn=theirs))
        assert client.status(made.id).state is dibs.State.UNKNOWN
        await session.commit()
    assert client.status(made.id).state is dibs.State.READY


def test_placeholders_are_numbered_and_cast() -> None:
    assert (
        numbered("f(%s, %s::jsonb, s => %s::uuid[], %s::text[], %s::interval[], %s::uuid)")
        == "f($1, $2::text::jsonb, s => $3::text::uuid[], $4::text[], $5::text[]::interval[], $6::uuid)"
    )


def test_no_library_is_imported_to_tell_whose_connection_it_is() -> None:
    asked = "import sys, dibs; print({'asyncpg', 'sqlalchemy', 'django'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
