"""Deliveries and supervisors with two real connections: one look for each process, one send for each message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

import dibs
from tests.sql.test_functions import begin, notes, record, shop
from tests.sql.test_races import Later, later

if TYPE_CHECKING:
    from tests.conftest import Connect

    Connection = psycopg.Connection[Any]

__all__ = ["later", "shop"]
ASK = "select outcome from dibs.supervise('a', '{}', queue => 'orders')"
UNBLOCK = "select from dibs._unblock_tickets(array[%s], null, false, dibs.now())"


def parked(db: Connection, client: dibs.Client) -> dibs.Claimed:
    """The next look at a process, in `blocked`."""
    db.execute(ASK)
    [job] = client.claim("orders")
    db.execute("select dibs.park(%s, %s)", (job.id, job.token))
    return job


def waiting(client: dibs.Client) -> int:
    depth = client.queues.depth("orders")
    return depth.waiting + depth.blocked


def test_a_look_that_is_unblocked_meanwhile_stays_the_only_one(
    db: Connection, connect: Connect, client: dibs.Client, later: Later
) -> None:
    job = parked(db, client)
    unblocking, asking = connect(), connect()
    unblocking.execute("begin")
    unblocking.execute("lock table dibs.blocked in access exclusive mode")
    asked = later.start(asking, ASK)
    assert not asked.done()
    unblocking.execute(UNBLOCK, (job.id,))
    unblocking.execute("commit")
    assert asked.result() == [("duplicate",)]
    assert waiting(client) == 1


@pytest.mark.parametrize("blocked", [True, False], ids=["blocked", "ready"])
def test_a_look_that_is_being_cancelled_is_replaced(
    db: Connection, connect: Connect, client: dibs.Client, later: Later, blocked: bool
) -> None:
    job = parked(db, client)
    if not blocked:
        db.execute(UNBLOCK, (job.id,))
    cancelling, asking = connect(), connect()
    cancelling.execute("begin")
    cancelling.execute("select dibs.cancel(%s)", (job.id,))
    asked = later.start(asking, ASK)
    assert not asked.done()
    cancelling.execute("commit")
    assert asked.result() == [("enqueued",)]
    assert waiting(client) == 1


def test_two_that_ask_at_once_get_one_look(connect: Connect, client: dibs.Client, later: Later) -> None:
    one, other = connect(), connect()
    client.queues.set("orders")
    one.execute("begin")
    assert one.execute(ASK).fetchall() == [("enqueued",)]
    asked = later.start(other, ASK)
    assert not asked.done()
    one.execute("commit")
    assert asked.result() == [("duplicate",)]
    assert waiting(client) == 1


def leased(client: dibs.Client) -> dibs.Claimed:
    client.enqueue("q", "email")
    [job] = client.claim("q")
    return job


BEGIN = "select stage from dibs.begin_delivery(%s, %s, 'smtp')"


def test_a_send_begins_before_its_job_is_taken_over_or_not_at_all(
    db: Connection, connect: Connect, client: dibs.Client, later: Later
) -> None:
    """Otherwise neither holder would know of the other, and both would send."""
    job = leased(client)
    one, other = connect(), connect()
    one.execute("begin")
    one.execute("select dibs.release(%s, %s)", (job.id, job.token))
    begun = later.start(other, BEGIN, job.id, job.token)
    one.execute("commit")
    with pytest.raises(psycopg.Error) as lost:
        begun.result()
    assert lost.value.sqlstate == dibs.LeaseLost.sqlstate
    assert db.execute("select count(*) from dibs.delivery").fetchone() == (0,)


def test_a_step_that_is_asked_for_twice_at_once_is_one_step(
    db: Connection, connect: Connect, client: dibs.Client, later: Later
) -> None:
    job = leased(client)
    one, other = connect(), connect()
    one.execute("begin")
    one.execute(BEGIN, (job.id, job.token))
    begun = later.start(other, BEGIN, job.id, job.token)
    one.execute("commit")
    assert begun.result() == [("none",)]
    recording = "select dibs.record_delivery(%s, %s, 'accepted')"
    one.execute("begin")
    one.execute(recording, (job.id, job.token))
    recorded = later.start(other, recording, job.id, job.token)
    one.execute("commit")
    recorded.result()
    assert db.execute("select step from dibs.delivery order by seq").fetchall() == [("sending",), ("accepted",)]


def test_a_handler_is_not_told_again_when_the_answer_was_lost(
    db: Connection, client: dibs.Client, shop: Connection
) -> None:
    job = leased(client)
    begin(db, job)
    record(db, job, "accepted")
    told = "select dibs.run_handler(%s, %s, 'shop.note', %s)"
    args = (job.id, job.token, Jsonb({"text": "told"}))
    db.execute(told, args)
    with pytest.raises(psycopg.Error) as lost:
        db.execute(told, args)
    assert lost.value.sqlstate == dibs.LeaseLost.sqlstate
    assert notes(shop) == ["told"]


def test_only_the_holder_tells_a_handler(db: Connection, client: dibs.Client, shop: Connection) -> None:
    job = leased(client)
    begin(db, job)
    record(db, job, "refused")
    client.release(job)
    with pytest.raises(psycopg.Error) as lost:
        db.execute("select dibs.run_handler(%s, %s, 'shop.note', %s)", (job.id, job.token, Jsonb({"text": "late"})))
    assert lost.value.sqlstate == dibs.LeaseLost.sqlstate
    assert notes(shop) == []


FAILING = Jsonb({"write": True, "answer": {"success": False, "error": "not now"}})
ANSWER = "select dibs.run_handler(%s, %s, 'shop.answer', %s)"


def test_a_lost_token_leaves_no_writes_of_a_handler_without_success(
    db: Connection, client: dibs.Client, shop: Connection
) -> None:
    job = leased(client)
    begin(db, job)
    record(db, job, "accepted")
    client.release(job)
    [holder] = client.claim("q")
    with pytest.raises(psycopg.Error) as lost:
        db.execute(ANSWER, (job.id, job.token, FAILING))
    assert lost.value.sqlstate == dibs.LeaseLost.sqlstate
    assert notes(shop) == []
    db.execute(ANSWER, (holder.id, holder.token, FAILING))
    assert notes(shop) == ["written"]


def test_a_result_that_two_tokens_record_stays_done(db: Connection, client: dibs.Client) -> None:
    job = leased(client)
    begin(db, job)
    record(db, job, "accepted")
    record(db, job, "recorded")
    client.release(job)
    [again] = client.claim("q")
    record(db, again, "recorded")
    assert begin(db, again) == "done"


def test_a_step_that_arrives_again_after_a_later_step_changes_nothing(db: Connection, client: dibs.Client) -> None:
    job = leased(client)
    begin(db, job)
    record(db, job, "failed")
    begin(db, job)
    record(db, job, "failed")
    begin(db, job)
    record(db, job, "accepted")
    record(db, job, "recorded")
    record(db, job, "accepted")
    assert begin(db, job) == "done"
    client.complete(job)
    record(db, job, "accepted")
    steps = [step for (step,) in db.execute("select step from dibs.delivery order by seq")]
    assert steps == ["sending", "failed", "sending", "failed", "sending", "accepted", "recorded"]
