"""The bell: rung once for each commit and queue at most, never in anybody's way, and never needed."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import dibs
from dibs.db.listen import AsyncBell, Bell
from dibs.runtime.points import armed
from dibs.runtime.wake import FAST_POLLS
from tests.waiting import wait_until

if TYPE_CHECKING:
    import psycopg

    from tests.conftest import Connect

ENQUEUE = "select dibs.enqueue('q', 'k')"


def rings(listener: psycopg.Connection[Any]) -> list[str]:
    """The queues heard so far; a notification arrives with the answer to any statement."""
    names = dict(listener.execute("select number::text, queue from dibs.bells()").fetchall())
    return [names[note.payload] for note in listener.notifies(timeout=0)]


@pytest.fixture
def listener(connect: Connect) -> psycopg.Connection[Any]:
    conn = connect()
    conn.execute("listen dibs")
    return conn


def test_a_bell_that_is_stopped_ends_the_waits(dsn: str) -> None:
    bell = Bell(dsn)
    bell.start(10)
    is_rung: list[bool] = []
    waiting = threading.Thread(target=lambda: is_rung.append(bell.wait(["q"], bell.rings_of(["q"]), 60)))
    waiting.start()
    bell.stop()
    waiting.join(10)
    assert is_rung == [False]


async def test_an_async_bell_that_is_stopped_ends_the_waits(dsn: str) -> None:
    bell = AsyncBell(dsn)
    await bell.start(10)
    waiting = asyncio.create_task(bell.wait(["q"], bell.rings_of(["q"]), 60))
    await asyncio.sleep(0)
    await bell.stop()
    async with asyncio.timeout(10):
        await waiting


def test_a_commit_rings_once_for_each_queue(connect: Connect, listener: psycopg.Connection[Any]) -> None:
    conn = connect()
    with conn.transaction():
        for _ in range(3):
            conn.execute(
                'select from dibs.enqueue_many(\'[{"queue": "a", "kind": "k"}, {"queue": "b", "kind": "k"}]\')'
            )
        assert rings(listener) == []
    assert sorted(rings(listener)) == ["a", "b"]
    with conn.transaction(force_rollback=True):
        conn.execute(ENQUEUE)
    assert rings(listener) == []


def test_a_ring_does_not_say_the_name_of_its_queue(
    client: dibs.Client, db: psycopg.Connection[Any], listener: psycopg.Connection[Any]
) -> None:
    """Every login may listen, also one that may not know that there is such a queue."""
    client.enqueue("secret", "k")
    client.queues.pause("secret")
    client.queues.resume("secret")
    client.limits.set(queue="secret", concurrency=1)
    listener.execute("select 1")
    numbers = {note.payload for note in listener.notifies(timeout=0)}
    assert db.execute("select array_agg(number::text), array_agg(queue) from dibs.bells()").fetchone() == (
        list(numbers), ["secret"],
    )  # fmt: skip


def test_only_one_committer_rings_at_a_time_and_none_waits(connect: Connect, listener: psycopg.Connection[Any]) -> None:
    """NOTIFY in every enqueue would serialize the commits of the whole cluster."""
    ringer, other = connect(), connect()
    other.execute(ENQUEUE)
    assert rings(listener) == ["q"]
    ringer.execute("begin")
    ringer.execute(ENQUEUE)
    ringer.execute("set constraints all immediate")
    other.execute("set statement_timeout = '2s'")
    other.execute(ENQUEUE)
    assert rings(listener) == []
    ringer.execute("commit")
    assert rings(listener) == ["q"]


def test_a_long_transaction_does_not_silence_the_queue(connect: Connect, listener: psycopg.Connection[Any]) -> None:
    long, other = connect(), connect()
    long.execute(ENQUEUE)
    rings(listener)
    long.execute("begin")
    long.execute(ENQUEUE)
    other.execute(ENQUEUE)
    assert rings(listener) == ["q"]
    long.execute("commit")
    assert rings(listener) == ["q"]


def test_without_the_bell_a_transaction_can_be_prepared(
    connect: Connect, client: dibs.Client, listener: psycopg.Connection[Any]
) -> None:
    client.queues.set("q", ring=False)
    conn = connect()
    conn.execute("begin")
    conn.execute(ENQUEUE)
    conn.execute("prepare transaction 'two-phase'")
    assert client.claim("q") == []
    conn.execute("commit prepared 'two-phase'")
    assert len(client.claim("q", wait=10)) == 1
    assert rings(listener) == []


def test_a_cancel_of_a_running_job_rings_for_its_run(
    client: dibs.Client, connect: Connect, listener: psycopg.Connection[Any]
) -> None:
    """Its holder knows what is meant by it, and nobody else does."""

    def heard() -> list[str]:
        listener.execute("select 1")
        return sorted(note.payload for note in listener.notifies(timeout=0))

    made = client.enqueue_many(dibs.NewJob(queue="q", kind="k") for _ in range(4))
    jobs = client.claim("q", 3)
    heard()
    answers = [told.answer for told in client.cancel_many([m.id for m in made])]
    assert answers == ["requested"] * 3 + ["cancelled"]
    assert heard() == sorted(f"stop {job._mark}" for job in jobs)
    assert not any(str(job.id)[-12:] in job._mark for job in jobs)
    client.queues.set("q", ring=False)
    conn = connect()
    conn.execute("begin")
    conn.execute("select dibs.cancel(%s)", (made[0].id,))
    conn.execute("prepare transaction 'cancel'")
    conn.execute("commit prepared 'cancel'")
    assert heard() == []


def enqueue_once_waiting(dsn: str, listening: psycopg.Connection[Any], **options: Any) -> threading.Thread:
    """Enqueue from a thread as soon as somebody listens and has looked."""

    def run() -> None:
        waiting = "select count(*) from pg_stat_activity where datname = current_database() and query = 'listen dibs'"
        wait_until(lambda: listening.execute(waiting).fetchone() != (0,), what="somebody listens")
        with dibs.Client(dsn) as producer:
            producer.enqueue("q", "k", **options)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_waiting_claim_wakes_long_before_it_polls(dsn: str, db: psycopg.Connection[Any]) -> None:
    with dibs.Client(dsn, poll=30) as client:
        thread = enqueue_once_waiting(dsn, db)
        began = time.monotonic()
        assert len(client.claim("q", wait=30)) == 1
        assert time.monotonic() - began < 10
        thread.join()


async def test_the_async_client_wakes_too(dsn: str, db: psycopg.Connection[Any]) -> None:
    async with dibs.AsyncClient(dsn, poll=30) as client:
        thread = enqueue_once_waiting(dsn, db)
        began = time.monotonic()
        assert len(await client.claim("q", wait=30)) == 1
        assert time.monotonic() - began < 10
        thread.join()


def test_a_delayed_job_is_claimed_when_it_is_due(dsn: str, db: psycopg.Connection[Any]) -> None:
    with dibs.Client(dsn, poll=30) as client:
        thread = enqueue_once_waiting(dsn, db, delay=0.5)
        began = time.monotonic()
        [job] = client.claim("q", wait=30)
        assert time.monotonic() - began < 10
        assert job.claimed_at >= job.due_at
        thread.join()


def test_a_lost_bell_is_found_again(dsn: str, db: psycopg.Connection[Any]) -> None:
    listeners = "from pg_stat_activity where datname = current_database() and query = 'listen dibs'"
    with dibs.Client(dsn, poll=30) as client:
        assert client.claim("q", wait=0.1) == []
        [(pid,)] = db.execute(f"select pid {listeners}").fetchall()
        db.execute("select pg_terminate_backend(%s)", (pid,))
        wait_until(
            lambda: db.execute(f"select count(*) {listeners} and pid <> %s", (pid,)).fetchone() == (1,),
            what="it listens again",
        )
        thread = enqueue_once_waiting(dsn, db)
        began = time.monotonic()
        assert len(client.claim("q", wait=30)) == 1
        assert time.monotonic() - began < 10
        thread.join()


def test_polling_alone_is_enough(client: dibs.Client, connect: Connect) -> None:
    client.queues.set("q", ring=False)
    conn = connect()
    thread = threading.Thread(target=lambda: conn.execute(ENQUEUE))
    thread.start()
    assert len(client.claim("q", wait=10)) == 1
    thread.join()


def test_an_empty_wait_ends_in_time(client: dibs.Client) -> None:
    began = time.monotonic()
    assert client.claim("q", wait=0.3) == []
    assert 0.3 <= time.monotonic() - began < 3


def test_a_closed_client_refuses(dsn: str) -> None:
    client = dibs.Client(dsn)
    assert client.claim("q", wait=0.05) == []
    client.close()
    with pytest.raises(dibs.errors.ClientClosed):
        client.claim("q", wait=1)
    with pytest.raises(dibs.errors.ClientClosed):
        client.enqueue("q", "k")


async def test_a_ring_for_nothing_is_followed_by_few_looks(dsn: str) -> None:
    """A job that another worker took: looking every 5 ms would keep an idle fleet busy."""
    async with dibs.AsyncClient(dsn) as client:
        await client.claim("q", wait=0.01)
        assert client._bell is not None
        asyncio.get_running_loop().call_later(0.05, client._bell.ring, "q")
        with armed("database.before_send", lambda: None) as looks:
            await client.claim("q", wait=0.2)
    assert 3 < looks.passed <= 7 + len(FAST_POLLS)
