"""The upkeep against a real database."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections import Counter
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import dibs
from dibs.cluster import Member
from dibs.db import calls
from dibs.db.database_async import AsyncDatabase
from dibs.maintenance import CHORES, ChoreDone, ChoreFailed, do, maintain, once
from dibs.runtime.rest import REST
from tests.sql.plans import explained
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from dibs.embedded import Server
    from dibs.testing import Clock
    from tests.conftest import Connect

DAY = 86400.0


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[AsyncDatabase]:
    database = AsyncDatabase(dsn, pool_size=3)
    yield database
    await database.close()


def lose(client: dibs.Client, count: int, *, max_attempts: int = 5) -> None:
    """Claim jobs with leases that will not be renewed."""
    client.enqueue_many(dibs.NewJob(queue="lost", kind="k", max_attempts=max_attempts) for _ in range(count))
    assert len(client.claim("lost", count, lease=1)) == count


async def forced(database: AsyncDatabase, chore: str) -> ChoreDone:
    done = await do(database, chore, force=True)
    assert isinstance(done, ChoreDone), done
    return done


def test_python_and_sql_know_the_same_chores(db: psycopg.Connection[Any]) -> None:
    rows = db.execute("select name from dibs.chores order by every, name").fetchall()
    assert [name for (name,) in rows] == list(CHORES)
    [(body, comment)] = db.execute(
        "select string_agg(prosrc, ' '), obj_description('dibs.maintain'::regproc) from pg_proc"
        " where proname in ('_run_chore_step', '_expire_batches', '_run_schedule_round')"
    ).fetchall()
    named = set(re.split(r",\s", comment.partition(": ")[2].partition(".")[0]))
    assert named == set(CHORES), "the function's comment names them"
    assert all(f"when '{chore}' then" in body for chore in CHORES)


def test_python_and_sql_rest_alike(db: psycopg.Connection[Any]) -> None:
    assert db.execute("select dibs._cooldown(1)").fetchone() == (REST,)


async def test_rescue_goes_on_until_no_lease_is_left(
    client: dibs.Client, database: AsyncDatabase, clock: Clock
) -> None:
    lose(client, 1001)
    lose(client, 1, max_attempts=1)
    clock.move(60)
    first = await forced(database, "rescue")
    assert (first.more, first.again, sum(first.counts.values())) == (True, 0, 1000)
    second = await forced(database, "rescue")
    assert (second.more, second.again) == (False, 1)
    assert first.counts["exhausted"] + second.counts["exhausted"] == 1
    assert not (await forced(database, "rescue")).anything


async def test_a_walk_of_many_steps_goes_on_where_the_last_stopped(
    client: dibs.Client, database: AsyncDatabase, db: psycopg.Connection[Any], clock: Clock
) -> None:
    made = sorted(job.id for job in client.enqueue_many(dibs.NewJob(queue="q", kind="k", ttl=10) for _ in range(5)))
    clock.move(60)
    db.execute("update dibs.chore set place = %s, took = '1 second' where name = 'expire'", (made[2],))
    done = await forced(database, "expire")
    assert (done.counts, done.again >= 20) == ({"expired": 2}, True), "and rests for as long as the whole walk took"
    assert (await forced(database, "expire")).counts == {"expired": 3}


async def test_days_are_made_ahead_and_a_lock_is_tried_again_soon(
    database: AsyncDatabase, clock: Clock, db: psycopg.Connection[Any]
) -> None:
    clock.move(3 * DAY)
    with db.transaction():
        db.execute("lock table dibs.job_default in row exclusive mode")
        refused = await forced(database, "make_days")
    assert refused.counts["locked"] > 0
    assert refused.again == 30
    made = await forced(database, "make_days")
    assert made.counts["made"] > 0
    assert made.again == 30
    rest = await forced(database, "make_days")
    assert not rest.anything
    assert rest.again == 3600


async def test_prune_drops_old_days_and_comes_back_soon_for_a_locked_one(
    client: dibs.Client, database: AsyncDatabase, clock: Clock, db: psycopg.Connection[Any]
) -> None:
    client.enqueue("q", "k")
    client.complete(client.claim("q")[0])
    clock.move(60 * DAY)
    with db.transaction():
        db.execute("lock table dibs.job, dibs.attempt in row exclusive mode")
        refused = await forced(database, "prune")
    assert refused.counts["locked"] > 0
    assert refused.again == 10
    while (done := await forced(database, "prune")).counts["dropped"]:
        assert (done.more, done.again) == (True, 0.1)
    assert done.again == 600
    assert client.find_jobs().jobs == []


async def test_prune_comes_back_almost_at_once_when_there_is_more_to_trim(
    client: dibs.Client, database: AsyncDatabase, clock: Clock
) -> None:
    client.queues.set("brief", retention=DAY, history="none")
    client.queues.set("long", retention=300 * DAY)
    client.enqueue_many(dibs.NewJob(queue="brief", kind="k") for _ in range(1002))
    client.complete_many(client.claim("brief", 1002))
    clock.move(2 * DAY)
    first = await forced(database, "prune")
    assert (first.counts, first.more, first.again) == ({"trimmed": 1000}, True, 0.1)
    second = await forced(database, "prune")
    assert (second.counts, second.more, second.again) == ({"trimmed": 2}, False, 600)


async def test_workers_not_seen_for_days_are_forgotten(database: AsyncDatabase, clock: Clock) -> None:
    await database.run(calls.workers.register_worker("gone", {}))
    clock.move(8 * DAY)
    await database.run(calls.workers.register_worker("here", {}))
    assert (await forced(database, "forget")).counts == {"forgotten": 1}


async def test_once_does_every_chore(client: dibs.Client, database: AsyncDatabase, clock: Clock) -> None:
    lose(client, 2)
    client.enqueue("q", "k", ttl=10)
    clock.move(60)
    done = {d.chore: dict(d.counts) for d in await once(database) if isinstance(d, ChoreDone)}
    assert done["rescue"] == {"ready": 2}
    assert done["expire"] == {"expired": 1}
    assert list(done) == list(CHORES)


# --- no leader --------------------------------------------------------------------------------------------------------


async def test_a_chore_is_done_by_the_first_that_finds_it_due(database: AsyncDatabase) -> None:
    first, second = [await do(database, "expire") for _ in range(2)]
    assert isinstance(first, ChoreDone)
    assert isinstance(second, ChoreDone)
    assert (first.outcome, first.again) == ("done", 10)
    assert second.outcome == "early"
    assert 9 < second.again < 10.2, "when it is due again, or a little later"


async def test_a_chore_is_done_by_one_at_a_time_and_its_death_frees_it(
    client: dibs.Client, database: AsyncDatabase, connect: Connect, db: psycopg.Connection[Any]
) -> None:
    doing = connect()
    doing.execute("begin")
    assert doing.execute("select outcome from dibs.do_chore('roll_up')").fetchone() == ("done",)
    busy = await do(database, "roll_up")
    assert isinstance(busy, ChoreDone)
    assert (busy.outcome, busy.again) == ("busy", 1)
    assert client.upkeep.roll_up() is None
    notes = dict(db.execute("select chore, note from dibs.maintain()").fetchall())
    assert notes.pop("roll_up") == "skipped: another process is doing it"
    assert set(notes.values()) == {None}
    db.execute("select pg_terminate_backend(%s, 5000)", (doing.info.backend_pid,))
    assert (await forced(database, "roll_up")).outcome == "done"


async def test_a_chore_that_fails_stops_no_other_and_its_error_is_shown(
    client: dibs.Client, database: AsyncDatabase, db: psycopg.Connection[Any], clock: Clock
) -> None:
    db.execute("alter table dibs.floor_hint rename to elsewhere")
    client.enqueue("q", "k", ttl=10)
    clock.move(60)
    for failures in (1, 2):
        failed = await do(database, "forget", force=True)
        assert isinstance(failed, ChoreFailed)
        assert (failed.failures, failed.again) == (failures, 30)
        assert "floor_hint" in str(failed.error)
    done = {chore: (counts, note) for chore, counts, note in db.execute("select * from dibs.maintain()").fetchall()}
    assert done["expire"] == ({"expired": 1}, None)
    assert done["forget"][1].startswith("failed: relation")
    look = "select failures, error from dibs.chores where name = 'forget'"
    assert [row[0] for row in db.execute(look)] == [3]
    db.execute("alter table dibs.elsewhere rename to floor_hint")
    await forced(database, "forget")
    assert db.execute(look).fetchone() == (0, None)


def test_a_timeout_is_noted_as_any_other_error(db: psycopg.Connection[Any], connect: Connect) -> None:
    """And no chore waits for a lock for long, because that would hold the horizon back."""
    locker = connect()
    locker.execute("begin; lock table dibs.worker in access exclusive mode")
    look = "select outcome, error, wait from dibs.do_chore('forget', true)"
    failed = ("failed", "canceling statement due to lock timeout", timedelta(seconds=30))
    assert db.execute(look).fetchone() == failed
    db.execute("set statement_timeout = '100ms'")
    assert db.execute(look).fetchone() == ("failed", "canceling statement due to statement timeout", failed[2])
    db.execute("reset statement_timeout")
    locker.execute("rollback")
    assert db.execute("select outcome from dibs.do_chore('forget')").fetchone() == ("early",), "not at once"


def test_a_clock_stepped_back_stops_no_chore(db: psycopg.Connection[Any]) -> None:
    ahead = "update dibs.chore set done_at = now() + interval '1 day', due_at = now() + interval '2 days'"
    db.execute(f"{ahead} where name = 'expire'")
    assert db.execute("select outcome from dibs.do_chore('expire')").fetchone() == ("done",)


def test_dead_rows_of_a_chore_cost_nothing(db: psycopg.Connection[Any], connect: Connect) -> None:
    """With the horizon held back, each round leaves a dead row."""
    holder = connect()
    holder.execute("begin isolation level repeatable read")
    holder.execute("select pg_current_xact_id()")
    costs = []
    for _ in range(3):
        for _ in range(300):
            db.execute("select dibs.do_chore('forget', true)")
        with explained(db) as plans:
            db.execute("select dibs.do_chore('forget')")
        costs.append(sum(plan.buffers for plan in plans if "dibs.chore as c" in plan.text))
    assert costs[-1] < 2 * costs[0]


def test_an_unknown_chore_is_named(db: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.DatabaseError, match="there is no chore 'sweep'") as raised:
        db.execute("select dibs.do_chore('sweep')")
    assert raised.value.diag.message_hint == f"there are {', '.join(CHORES)}"


async def test_nobody_stands_in_for_a_dead_worker(client: dibs.Client, dsn: str, clock: Clock) -> None:
    """A worker that was killed is still registered, as the first; what is due is done by the others anyway."""
    client._run(calls.workers.register_worker("dead", {"upkeep": True}))
    client.enqueue("q", "k", ttl=10)
    clock.move(60)
    expired = asyncio.Event()

    def report(fact: ChoreDone | ChoreFailed) -> None:
        if isinstance(fact, ChoreDone) and fact.counts.get("expired"):
            expired.set()

    async with maintaining(dsn, report), asyncio.timeout(10):
        await expired.wait()


def test_processes_that_live_for_seconds_keep_a_schedule_going(dsn: str, client: dibs.Client) -> None:
    """A crash loop: each process is killed soon after it began, and is still registered when the next one starts."""
    client.queues.set("q", ttl=None)
    client.schedules.set("s", dibs.NewJob(queue="q", kind="k"), fixed_rate=1, overlap="allow", catch_up=100)

    def live_until_a_slot_is_fired() -> None:
        before = client.schedules.get("s").fired
        process = subprocess.Popen([sys.executable, "-m", "dibs", "maintain", "--dsn", dsn], stdout=subprocess.DEVNULL)
        try:
            wait_until(lambda: client.schedules.get("s").fired > before, timeout=15, what="a slot is fired")
        finally:
            process.kill()
            process.wait()

    for _ in range(2):
        live_until_a_slot_is_fired()


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
    assert client.queues.depth("lost").ready == 300


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


async def test_kinds_that_change_during_a_registration_are_sent_later(
    database: AsyncDatabase, db: psycopg.Connection[Any]
) -> None:
    member = Member(database, "m", kinds=["old"])
    registering = asyncio.create_task(member.register())
    await asyncio.sleep(0)  # The call is under way.
    member._kinds, member._kinds_changed = ["new"], True  # As set_kinds does before its own heartbeat, which may fail.
    await registering
    await member.beat()
    assert db.execute("select kinds from dibs.worker").fetchall() == [(["new"],)]


async def test_a_member_that_is_asked_to_stop_is_told_once_with_a_heartbeat(database: AsyncDatabase) -> None:
    """Also where no ring reaches it."""
    told: list[str] = []
    member = Member(database, "m", on_stop=lambda: told.append("stop"))
    number = await member.register()
    await member.beat()
    assert told == []
    await database.run(calls.workers.stop_worker(number))
    await member.beat()
    await member.beat()
    assert told == ["stop"]
    assert not member.is_marked(["0123456789abcdef"])


async def test_the_loops_survive_an_outage_longer_than_their_patience(own_server: Server) -> None:
    facts: asyncio.Queue[ChoreDone | ChoreFailed] = asyncio.Queue()

    async def until(wanted: Callable[[ChoreDone | ChoreFailed], bool]) -> None:
        async with asyncio.timeout(30):
            while not wanted(await facts.get()):
                pass

    def rescued(fact: ChoreDone | ChoreFailed) -> bool:
        return isinstance(fact, ChoreDone) and fact.chore == "rescue"

    async with maintaining(own_server.dsn(), facts.put_nowait, patience=0.1):
        await until(rescued)
        await asyncio.to_thread(own_server.stop, "immediate")
        await until(lambda fact: isinstance(fact, ChoreFailed) and isinstance(fact.error, dibs.ConnectionLost))
        await until(lambda fact: isinstance(fact, ChoreFailed) and fact.failures >= 2)
        await asyncio.to_thread(own_server.start)
        await until(rescued)
