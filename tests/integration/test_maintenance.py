"""The upkeep against a real database."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

import dibs
from dibs.cluster import Member
from dibs.db import calls
from dibs.db.database_async import AsyncDatabase
from dibs.db.schema import migrate
from dibs.embedded import UNSAFE_FAST, Server
from dibs.maintenance import CHORES, ChoreDone, ChoreFailed, expirer, maintain, once, partitions, pruner, rescuer
from dibs.maintenance.forgetter import forget
from dibs.runtime.rest import REST
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import psycopg

    from dibs.testing import Clock

DAY = 86400.0
VERB = re.compile(r"dibs\.([a-z]\w*)\(")
SMALL = {**UNSAFE_FAST, "shared_buffers": "16MB", "max_connections": "20"}


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[AsyncDatabase]:
    database = AsyncDatabase(dsn, pool_size=3)
    yield database
    await database.close()


def lose(client: dibs.Client, count: int, *, max_attempts: int = 5) -> None:
    """Claim jobs with leases that will not be renewed."""
    client.enqueue_many(dibs.NewJob(queue="lost", kind="k", max_attempts=max_attempts) for _ in range(count))
    assert len(client.claim("lost", count, lease=1)) == count


async def test_python_and_sql_do_the_same_upkeep(
    db: psycopg.Connection[Any], database: AsyncDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    run = AsyncDatabase.run

    async def recorded(self: AsyncDatabase, call: Any) -> Any:
        asked.append(call.sql)
        return await run(self, call)

    monkeypatch.setattr(AsyncDatabase, "run", recorded)
    await once(database)
    [(body, comment)] = db.execute(
        "select prosrc, obj_description('dibs.maintain'::regproc) from pg_proc where oid = 'dibs._do_step'::regproc"
    ).fetchall()
    assert set(VERB.findall(" ".join(asked))) - {"now"} == set(VERB.findall(body))
    steps = re.split(r",\s", comment.partition(": ")[2].partition(".")[0])
    assert set(steps) == set(VERB.findall(body)), "the function's comment names its steps"
    chores = db.execute("select chore from dibs._upkeep_steps()").fetchall()
    assert {chore for (chore,) in chores} == {chore.__name__ for chore in CHORES}


def test_python_and_sql_rest_alike(db: psycopg.Connection[Any]) -> None:
    assert db.execute("select dibs._rest(1)").fetchone() == (REST,)


async def test_rescue_goes_on_until_no_lease_is_left(
    client: dibs.Client, database: AsyncDatabase, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rescuer, "BATCH", 2)
    lose(client, 4)
    lose(client, 1, max_attempts=1)
    clock.move(60)
    done = await rescuer.rescue(database)
    assert (done.counts, done.again) == ({"ready": 4, "exhausted": 1}, rescuer.EVERY)
    assert not (await rescuer.rescue(database)).anything


async def test_expire_walks_all_chunks(
    client: dibs.Client, database: AsyncDatabase, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expirer, "CHUNK", 2)
    client.enqueue_many(dibs.NewJob(queue="q", kind="k", ttl=10) for _ in range(5))
    client.enqueue_many(dibs.NewJob(queue="q", kind="k", ttl=100) for _ in range(2))
    clock.move(60)
    assert (await expirer.expire(database)).counts == {"expired": 5}
    assert client.depth("q").ready == 2


async def test_days_are_made_ahead_and_a_lock_is_tried_again_soon(
    database: AsyncDatabase, clock: Clock, db: psycopg.Connection[Any]
) -> None:
    clock.move(3 * DAY)
    with db.transaction():
        db.execute("lock table dibs.job_default in row exclusive mode")
        refused = await partitions.make_days(database)
    assert refused.counts["locked"] > 0
    assert refused.again == partitions.SOON
    made = await partitions.make_days(database)
    assert made.counts["made"] > 0
    assert made.again == partitions.SOON
    rest = await partitions.make_days(database)
    assert not rest.anything
    assert rest.again == partitions.EVERY


async def test_prune_drops_old_days_and_comes_back_soon_for_a_locked_one(
    client: dibs.Client, database: AsyncDatabase, clock: Clock, db: psycopg.Connection[Any]
) -> None:
    client.enqueue("q", "k")
    client.complete(client.claim("q")[0])
    clock.move(60 * DAY)
    with db.transaction():
        db.execute("lock table dibs.job, dibs.attempt in row exclusive mode")
        refused = await pruner.prune(database)
    assert refused.counts["locked"] > 0
    assert refused.again == pruner.SOON
    while (done := await pruner.prune(database)).counts["dropped"]:
        assert done.again == pruner.AT_ONCE
    assert done.again == pruner.EVERY
    assert client.jobs() == []


async def test_prune_comes_back_almost_at_once_when_there_is_more_to_trim(
    client: dibs.Client, database: AsyncDatabase, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruner, "BATCH", 3)
    client.set_queue("brief", retention=DAY, history="none")
    client.set_queue("long", retention=300 * DAY)
    client.enqueue_many(dibs.NewJob(queue="brief", kind="k") for _ in range(5))
    client.complete_many(client.claim("brief", 5))
    clock.move(2 * DAY)
    first = await pruner.prune(database)
    assert (first.counts, first.again) == ({"trimmed": 3}, pruner.AT_ONCE)
    second = await pruner.prune(database)
    assert (second.counts, second.again) == ({"trimmed": 2}, pruner.EVERY)


async def test_workers_not_seen_for_days_are_forgotten(database: AsyncDatabase, clock: Clock) -> None:
    await database.run(calls.workers.register_worker("gone", {}))
    clock.move(8 * DAY)
    await database.run(calls.workers.register_worker("here", {}))
    assert (await forget(database)).counts == {"forgotten": 1}


async def test_once_does_every_chore(client: dibs.Client, database: AsyncDatabase, clock: Clock) -> None:
    lose(client, 2)
    client.enqueue("q", "k", ttl=10)
    clock.move(60)
    done = {d.chore: dict(d.counts) for d in await once(database)}
    assert done["rescue"] == {"ready": 2}
    assert done["expire"] == {"expired": 1}
    assert list(done) == ["rescue", "schedule", "expire", "mend", "make_days", "prune", "forget", "roll_up"]


@asynccontextmanager
async def maintaining(
    dsn: str, report: Callable[[ChoreDone | ChoreFailed], None], *, patience: float = 5.0
) -> AsyncIterator[AsyncDatabase]:
    database, stop = AsyncDatabase(dsn, pool_size=3, patience=patience), asyncio.Event()
    running = asyncio.create_task(maintain(database, until=stop, listener=report, name="test"))
    try:
        yield database
    finally:
        stop.set()
        await running
        await database.close()


async def test_two_at_once_do_no_harm(client: dibs.Client, dsn: str, clock: Clock) -> None:
    lose(client, 300)
    clock.move(60)
    rescued, all_back = Counter[str](), asyncio.Event()

    def report(fact: ChoreDone | ChoreFailed) -> None:
        assert isinstance(fact, ChoreDone), fact
        if fact.chore == "rescue":
            rescued.update(fact.counts)
        if rescued["ready"] >= 300:
            all_back.set()

    async with maintaining(dsn, report), maintaining(dsn, report):
        async with asyncio.timeout(20):
            await all_back.wait()
    assert rescued == {"ready": 300}
    assert client.depth("lost").ready == 300


async def test_it_is_registered_while_it_runs(dsn: str, db: psycopg.Connection[Any]) -> None:
    def workers() -> list[Any]:
        return db.execute("select name, facts ?& '{host,pid,python,dibs}' from dibs.workers").fetchall()

    async with maintaining(dsn, lambda _: None):
        await asyncio.to_thread(wait_until, workers, what="a worker is registered")
        assert workers() == [("test", True)]
    assert workers() == []


async def test_a_member_that_was_forgotten_registers_anew(database: AsyncDatabase) -> None:
    member = Member(database, "m")
    await member.beat()
    first = member.secret
    assert first is not None
    await member.beat()
    assert member.secret == first
    await database.run(calls.workers.retire_worker(first))
    await member.beat()
    assert member.secret not in {None, first}


async def test_the_loops_survive_an_outage_longer_than_their_patience() -> None:
    facts: asyncio.Queue[ChoreDone | ChoreFailed] = asyncio.Queue()

    async def until(wanted: Callable[[ChoreDone | ChoreFailed], bool]) -> None:
        async with asyncio.timeout(30):
            while not wanted(await facts.get()):
                pass

    def rescued(fact: ChoreDone | ChoreFailed) -> bool:
        return isinstance(fact, ChoreDone) and fact.chore == "rescue"

    with Server.temporary(settings=SMALL) as server:
        migrate(server.dsn())
        async with maintaining(server.dsn(), facts.put_nowait, patience=0.1):
            await until(rescued)
            await asyncio.to_thread(server.stop, "immediate")
            await until(lambda fact: isinstance(fact, ChoreFailed) and isinstance(fact.error, dibs.ConnectionLost))
            await until(lambda fact: isinstance(fact, ChoreFailed) and fact.failures >= 2)
            await asyncio.to_thread(server.start)
            await until(rescued)
