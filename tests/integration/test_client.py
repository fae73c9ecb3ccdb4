"""The clients against a real database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import dibs

if TYPE_CHECKING:
    import psycopg

    from dibs.testing import Clock


def test_a_job_lives_its_life(client: dibs.Client) -> None:
    made = client.enqueue("mail", "welcome", {"user": 42}, priority=9)
    assert made.is_new
    assert client.state(made.id) is dibs.State.READY
    [job] = client.claim("mail", 10)
    assert (job.id, job.kind, job.payload, job.priority, job.attempt) == (made.id, "welcome", {"user": 42}, 9, 1)
    assert client.extend(job) == "ok"
    assert client.complete(job, {"sent": True}) == "ok"
    assert client.complete(job) == "already"
    assert client.state(made.id) is dibs.State.SUCCEEDED
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
        assert await client.state(made.id) is dibs.State.FAILED
        [redriven] = await client.redrive(queue="mail")
        assert redriven.answer == "redriven"


def test_enqueue_commits_and_rolls_back_with_the_callers_transaction(
    client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    with db.transaction(force_rollback=True):
        gone = client.enqueue("mail", "welcome", conn=db)
    with db.transaction():
        kept = client.enqueue("mail", "welcome", conn=db)
    assert client.states([gone.id, kept.id]) == [dibs.State.UNKNOWN, dibs.State.READY]


def test_bulk_enqueue_knows_its_ids_and_keeps_its_order(client: dibs.Client) -> None:
    made = client.enqueue_many(dibs.NewJob(queue="bulk", kind="n", payload=n) for n in range(2500))
    assert [m.outcome for m in made] == ["enqueued"] * 2500
    claimed = client.claim("bulk", 2500)
    assert [job.id for job in claimed] == [m.id for m in made]
    assert [job.payload for job in claimed] == list(range(2500))


def test_the_plain_queue_is_like_sqs(client: dibs.Client, clock: Clock) -> None:
    queue = client.queue("plugins")
    assert queue.depth() == dibs.Depth("plugins")
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
