"""The clients against a real database."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import dibs
from dibs import types
from dibs.db import calls
from dibs.db.database import Database
from tests.waiting import wait_until

if TYPE_CHECKING:
    import psycopg

    from dibs.testing import Clock
    from tests.conftest import Connect


def test_a_job_lives_its_life(client: dibs.Client) -> None:
    made = client.enqueue("mail", "welcome", {"user": 42}, priority=9)
    assert made.is_new
    assert client.status(made.id).state is dibs.State.READY
    [job] = client.claim("mail", 10)
    assert (job.id, job.kind, job.payload, job.priority, job.attempt) == (made.id, "welcome", {"user": 42}, 9, 1)
    assert client.extend(job) == "ok"
    assert client.complete(job, {"sent": True}) == "ok"
    assert client.complete(job) == "already"
    assert client.status(made.id).state is dibs.State.SUCCEEDED
    shown = client.show(made.id)
    assert shown is not None
    assert shown["attempts"][0]["result"] == {"sent": True}


async def test_the_async_client_does_the_same(dsn: str) -> None:
    async with dibs.AsyncClient(dsn) as client:
        made = await client.enqueue("mail", "welcome", b"\x00\xff", headers={"trace": "1"})
        [job] = await client.claim("mail", wait=5)
        assert (job.content, job.content_type, job.headers) == (b"\x00\xff", "application/octet-stream", {"trace": "1"})
        failed = await client.fail(job, "ValueError: no", final=True)
        assert failed.state == "failed"
        assert (await client.status(made.id)).state is dibs.State.FAILED
        assert (await client.retry({"queue": "mail"})).done == 1


async def test_claims_of_one_client_that_wait_share_a_rescue(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with dibs.AsyncClient(dsn, poll=0) as client:
        going_on = asyncio.Event()
        rescues: list[int] = []

        async def rescue(max: int) -> None:
            rescues.append(max)
            await going_on.wait()

        monkeypatch.setattr(client.upkeep, "rescue", rescue)
        client._poll = 60
        first = asyncio.create_task(client._rescue_now_and_then())
        await asyncio.sleep(0)
        assert rescues == [100]
        await client._rescue_now_and_then()  # It waits for nothing.
        going_on.set()
        await first
        assert rescues == [100]


def test_enqueue_commits_and_rolls_back_with_the_callers_transaction(
    client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    with db.transaction(force_rollback=True):
        gone = client.enqueue("mail", "welcome", conn=db)
    with db.transaction():
        kept = client.enqueue("mail", "welcome", conn=db)
    assert [s.state for s in client.status_many([gone.id, kept.id])] == [dibs.State.UNKNOWN, dibs.State.READY]


def test_bulk_enqueue_knows_its_ids_and_keeps_its_order(client: dibs.Client) -> None:
    made = client.enqueue_many(dibs.NewJob(queue="bulk", kind="n", payload=n) for n in range(2500))
    assert [m.outcome for m in made] == ["enqueued"] * 2500
    claimed = client.claim("bulk", 2500)
    assert [job.id for job in claimed] == [m.id for m in made]
    assert [job.payload for job in claimed] == list(range(2500))


def test_the_plain_queue_is_like_sqs(client: dibs.Client, clock: Clock) -> None:
    queue = client.message_queue("plugins")
    assert queue.depth() == dibs.types.Depth("plugins")
    queue.send(b"payload")
    queue.send_many([{"n": 1}, {"n": 2}])
    first, second, third = queue.receive(10, visibility=30)
    assert (first.body, second.body, third.body) == (b"payload", {"n": 1}, {"n": 2})
    assert queue.receive() == []
    assert queue.depth().running == 3
    first.ack()
    second.release()
    third.fail("no good", final=True)
    assert queue.depth().ready == 1
    assert queue.depth().dead == 1
    [again] = queue.receive(visibility=30, wait=5)
    assert (again.body, again.receive_count) == ({"n": 1}, 2)
    clock.move(31)
    [rescued] = queue.receive(wait=20)
    assert rescued.receive_count == 3
    with pytest.raises(dibs.LeaseLost):
        again.ack()


@pytest.mark.parametrize(
    ("view", "row"),
    [
        ("limits", types.Limit), ("queues", types.QueueInfo), ("schedules", types.Schedule), ("shards", types.Shard),
        ("tasks", types.TaskInfo), ("totals", types.Totals), ("workers", types.WorkerInfo),
    ],
)  # fmt: skip
def test_a_list_leaves_out_no_column_of_its_view(shared_db: psycopg.Connection[Any], view: str, row: type[Any]) -> None:
    columns = [column.name for column in shared_db.execute(f"select * from dibs.{view}").description or ()]
    assert sorted(row.__struct_fields__) == sorted(columns)


def test_queues_show_every_setting_that_can_be_set(client: dibs.Client) -> None:
    client.queues.set("reports", noisy_share=0.3)
    [queue] = client.queues.list()
    assert queue.noisy_share == 0.3
    assert dibs.types.QueuePolicy.__annotations__.keys() - {*queue.__struct_fields__} == {"exclusive"}


def test_a_limit_that_is_taken_away_says_so(client: dibs.Client) -> None:
    client.limits.set(kind="report", concurrency=3)
    assert client.limits.drop(kind="report") is True
    with pytest.raises(dibs.errors.UnknownLimit):
        client.limits.drop(kind="report")


def test_the_backoff_python_offers_first_is_the_one_a_queue_has(client: dibs.Client) -> None:
    client.queues.set("by_sql")
    client.queues.set("by_python", backoff=dibs.exponential())
    by_python, by_sql = client.queues.list()
    assert by_python.backoff == by_sql.backoff


async def test_one_call_after_another_takes_one_connection(dsn: str, db: psycopg.Connection[Any]) -> None:
    others = "select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    with dibs.Client(dsn) as client:
        for _ in range(3):
            client.enqueue("mail", "welcome")
        assert len(db.execute(others).fetchall()) == 1
        async with dibs.AsyncClient(dsn) as another:
            for _ in range(3):
                await another.enqueue("mail", "welcome")
            assert len(db.execute(others).fetchall()) == 2


def test_a_pool_that_is_in_use_is_no_outage(dsn: str) -> None:
    database = Database(dsn, pool_size=1, patience=0.2)
    with (
        database.transaction(),
        pytest.raises(dibs.errors.PoolExhausted, match="all 1 connections of this client are in use"),
    ):
        database.run(calls.schema.now())
    assert database.run(calls.schema.now())
    database.close()


@pytest.mark.parametrize("cancels", [1, 2])
async def test_a_cancelled_claim_gives_its_jobs_back(dsn: str, connect: Connect, cancels: int) -> None:
    """However often it is cancelled, its jobs wait again, uncharged."""
    holder = connect()
    async with dibs.AsyncClient(dsn) as client:
        made = await client.enqueue("q", "k")
        holder.execute("begin")
        holder.execute("lock table dibs.lease in access exclusive mode")
        claiming = asyncio.create_task(client.claim("q"))
        await asyncio.to_thread(
            wait_until,
            lambda: connect().execute("select from pg_locks where not granted").fetchone() is not None,
            what="the claim waits for the lock",
        )
        for _ in range(cancels):
            claiming.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        holder.execute("commit")
        with pytest.raises(asyncio.CancelledError):
            await claiming
        history = "select count(*) from dibs.attempt"
        await asyncio.to_thread(
            wait_until, lambda: connect().execute(history).fetchone() == (1,), what="the job was claimed and released"
        )
        status = await client.status(made.id)
        assert (status.state, status.attempts) == (dibs.State.READY, 0)


async def test_a_cancelled_claim_that_fails_still_ends_as_cancelled(dsn: str) -> None:
    async with dibs.AsyncClient(dsn) as client:
        may_fail, began = asyncio.Event(), asyncio.Event()

        async def fail(_: Any, conn: Any = None) -> Any:
            began.set()
            await may_fail.wait()
            raise dibs.errors.ConnectionLost("gone")

        client._run = fail  # type: ignore[method-assign, assignment]
        claiming = asyncio.create_task(client.claim("q"))
        await began.wait()
        claiming.cancel()
        await asyncio.sleep(0)
        may_fail.set()
        with pytest.raises(asyncio.CancelledError):
            await claiming


async def test_an_error_in_one_close_leaves_nothing_open(dsn: str) -> None:
    app = dibs.App(dsn)
    client = app.async_client()
    await client.now()

    async def fail() -> None:
        raise RuntimeError("a closer")

    app.closing.append(fail)
    with pytest.raises(RuntimeError, match="a closer"):
        await app.aclose()
    with pytest.raises(dibs.errors.ClientClosed):
        await client.now()


@pytest.mark.parametrize("delay", [0.00005, timedelta(microseconds=1)])
def test_the_shortest_delays_are_taken(client: dibs.Client, delay: float | timedelta) -> None:
    client.enqueue_many(dibs.NewJob(queue="q") for _ in range(3))
    snoozed, failed, released = client.claim("q", 3)
    assert client.snooze(snoozed, delay) is dibs.Answer.OK
    assert client.fail(failed, "no", delay=delay).answer is dibs.Answer.OK
    client.release_many([released])


class Measured(msgspec.Struct):
    value: float


@pytest.mark.parametrize("payload", [{float("nan"), 1.0}, {"measured": Measured(float("inf"))}])
def test_no_number_becomes_null_silently(client: dibs.Client, payload: object) -> None:
    with pytest.raises(dibs.InvalidArgument, match="no NaN and no infinity"):
        client.enqueue("q", "k", payload)
