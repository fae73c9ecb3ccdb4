"""Two real connections, statement by statement: whichever commits first, each ticket ends up in one place."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import dibs
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from dibs.testing import Clock
    from tests.conftest import Connect


class Later:
    """Runs a statement that may have to wait for a lock, in a separate thread."""

    def __init__(self, watcher: psycopg.Connection[Any]) -> None:
        self._pool = ThreadPoolExecutor(4)
        self._watcher = watcher

    def start(self, conn: psycopg.Connection[Any], statement: str, *args: Any) -> Future[list[Any]]:
        def run() -> list[Any]:
            return conn.execute(statement, args).fetchall()

        future = self._pool.submit(run)
        waiting = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
        pid = conn.info.backend_pid
        wait_until(
            lambda: future.done() or self._watcher.execute(waiting, (pid,)).fetchone() == (True,),
            what="the statement waits or is done",
        )
        return future

    def close(self) -> None:
        self._pool.shutdown()


@pytest.fixture
def later(connect: Connect) -> Iterator[Later]:
    later = Later(connect())
    yield later
    later.close()


def held_job(client: dibs.Client, kind: str = "k") -> dibs.Claimed:
    client.enqueue("q", kind)
    [job] = client.claim("q")
    return job


def tickets(db: psycopg.Connection[Any], id: UUID) -> list[str]:
    rows = db.execute(
        "select 'ready' from dibs.ready where id = %(id)s union all select 'lease' from dibs.lease where id = %(id)s"
        " union all select state from dibs.dead where id = %(id)s",
        {"id": id},
    )
    return [row[0] for row in rows]


def test_claim_and_claim(connect: Connect, client: dibs.Client) -> None:
    """A second claimer whose snapshot is older must find the row gone, not merely unlocked."""
    client.enqueue("q", "k")
    one, other = connect(), connect()
    one.execute("begin")
    other.execute("begin")
    other.execute("select count(*) from dibs.ready")
    assert len(one.execute("select * from dibs.claim('{q}')").fetchall()) == 1
    assert other.execute("select * from dibs.claim('{q}')").fetchall() == []
    one.execute("commit")
    assert other.execute("select * from dibs.claim('{q}')").fetchall() == []
    other.execute("commit")


def test_a_rolled_back_claim_leaves_the_job_for_others(connect: Connect, client: dibs.Client) -> None:
    """A claim whose COMMIT failed has claimed nothing."""
    made = client.enqueue("q", "k")
    one, other = connect(), connect()
    one.execute("begin")
    [(id, token)] = one.execute("select id, token from dibs.claim('{q}')").fetchall()
    one.execute("rollback")
    with pytest.raises(psycopg.DatabaseError) as raised:
        one.execute("select dibs.complete(%s, %s)", (id, token))
    assert raised.value.sqlstate == "DI001"
    wait_until(lambda: other.execute("select id from dibs.claim('{q}')").fetchone() == (made.id,), what="claimed again")


@pytest.mark.parametrize("first", ["complete", "rescue"])
def test_complete_and_rescue(
    first: str, connect: Connect, client: dibs.Client, clock: Clock, later: Later, db: psycopg.Connection[Any]
) -> None:
    clock.freeze()
    job = held_job(client)
    clock.move(60)
    one, other = connect(), connect()
    complete, rescue = "select dibs.complete(%s, %s)", "select id from dibs.rescue()"
    one.execute("begin")
    if first == "complete":
        assert one.execute(complete, (job.id, job.token)).fetchone() == ("ok",)
        assert other.execute(rescue).fetchall() == []
        one.execute("commit")
        assert tickets(db, job.id) == []
    else:
        assert one.execute(rescue).fetchall() == [(job.id,)]
        waiting = later.start(other, complete, job.id, job.token)
        assert not waiting.done()
        one.execute("commit")
        with pytest.raises(psycopg.DatabaseError) as raised:
            waiting.result()
        assert raised.value.sqlstate == "DI001"
        assert tickets(db, job.id) == ["ready"]


@pytest.mark.parametrize("first", ["cancel", "complete"])
def test_cancel_and_complete(
    first: str, connect: Connect, client: dibs.Client, later: Later, db: psycopg.Connection[Any]
) -> None:
    job = held_job(client)
    one, other = connect(), connect()
    cancel, complete = "select answer from dibs.cancel_many(array[%s])", "select dibs.complete(%s, %s)"
    one.execute("begin")
    if first == "cancel":
        assert one.execute(cancel, (job.id,)).fetchone() == ("requested",)
        waiting = later.start(other, complete, job.id, job.token)
        one.execute("commit")
        assert waiting.result() == [("ok",)]
    else:
        assert one.execute(complete, (job.id, job.token)).fetchone() == ("ok",)
        waiting = later.start(other, cancel, job.id)
        one.execute("commit")
        assert waiting.result() == [("ended",)]
    assert tickets(db, job.id) == []
    assert client.status(job.id).state is dibs.State.SUCCEEDED


def test_a_cancel_follows_a_ticket_that_moves(connect: Connect, client: dibs.Client, later: Later) -> None:
    job = held_job(client)
    one, other = connect(), connect()
    one.execute("begin")
    one.execute("select dibs.release(%s, %s)", (job.id, job.token))
    waiting = later.start(other, "select answer from dibs.cancel_many(array[%s])", job.id)
    one.execute("commit")
    assert waiting.result() == [("cancelled",)]
    assert client.status(job.id).state is dibs.State.CANCELLED


@pytest.mark.parametrize("first", ["expire", "claim"])
def test_expire_and_claim(first: str, connect: Connect, client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    made = client.enqueue("q", "k", ttl=10)
    one, other = connect(), connect()
    one.execute("begin")
    if first == "claim":
        assert len(one.execute("select * from dibs.claim('{q}')").fetchall()) == 1
        clock.move(11)
        assert other.execute("select expired from dibs.expire()").fetchone() == (0,)
        one.execute("commit")
        assert client.status(made.id).state is dibs.State.RUNNING
    else:
        clock.move(11)
        assert one.execute("select expired from dibs.expire()").fetchone() == (1,)
        clock.move(-11)
        assert other.execute("select * from dibs.claim('{q}')").fetchall() == []
        one.execute("commit")
        assert client.status(made.id).state is dibs.State.EXPIRED


def test_enqueue_and_prune(connect: Connect, client: dibs.Client, clock: Clock, later: Later) -> None:
    """A day is not dropped while a transaction that wrote to it is open, and nobody waits behind the attempt."""
    old = client.enqueue("q", "old")
    client.complete(client.claim("q")[0])
    clock.move(40 * 86400)
    client.upkeep.make_days()
    writer, pruner, reader = connect(), connect(), connect()
    writer.execute("begin")
    writer.execute("select * from dibs.enqueue('q', 'new')")
    outcomes = {o for _, o, _ in pruner.execute("select * from dibs.prune()").fetchall()}
    assert "locked" in outcomes
    assert reader.execute("select (dibs.status(%s)).state", (old.id,)).fetchone() == ("succeeded",)
    writer.execute("commit")
    while rows := pruner.execute("select name, outcome from dibs.prune()").fetchall():
        assert {outcome for _, outcome in rows} == {"dropped"}
    assert client.status(old.id).state is dibs.State.UNKNOWN
    assert client.queues.depth("q").ready == 1


def test_twenty_enqueues_of_one_key_make_one_job(dsn: str) -> None:
    """The outcome says which job stands for the key."""
    together = threading.Barrier(20)

    def enqueue(_: int) -> tuple[UUID, str]:
        with psycopg.connect(dsn, autocommit=True) as conn:
            together.wait()
            row = conn.execute("select * from dibs.enqueue('q', 'k', dedup_key => 'same')").fetchone()
            assert row
            return row[0], row[1]

    with ThreadPoolExecutor(20) as pool:
        made = list(pool.map(enqueue, range(20)))
    assert len({id for id, _ in made}) == 1
    assert sorted(outcome for _, outcome in made) == ["duplicate"] * 19 + ["enqueued"]


def test_two_enqueues_of_one_id_make_one_job(connect: Connect, later: Later, client: dibs.Client) -> None:
    one, other = connect(), connect()
    row = one.execute("select dibs.make_id()").fetchone()
    assert row
    enqueue = "select * from dibs.enqueue('q', 'k', id => %s)"
    client.queues.set("q")
    one.execute("begin")
    assert one.execute(enqueue, (row[0],)).fetchone() == (row[0], "enqueued")
    waiting = later.start(other, enqueue, row[0])
    one.execute("commit")
    with pytest.raises(psycopg.errors.UniqueViolation):
        waiting.result()
    assert other.execute(enqueue, (row[0],)).fetchone() == (row[0], "duplicate")
    assert client.queues.depth("q").ready == 1


def test_a_key_freed_while_we_wait_is_ours(connect: Connect, client: dibs.Client, later: Later) -> None:
    client.enqueue("q", "k", dedup_key="same")
    [job] = client.claim("q")
    one, other = connect(), connect()
    one.execute("begin")
    one.execute("select dibs.complete(%s, %s)", (job.id, job.token))
    waiting = later.start(other, "select outcome from dibs.enqueue('q', 'k', dedup_key => 'same')")
    one.execute("commit")
    assert waiting.result() == [("enqueued",)]


def test_batches_over_the_same_leases_in_other_orders_never_deadlock(dsn: str, client: dibs.Client) -> None:
    client.queues.set("q", lease=600)
    client.enqueue_many(dibs.NewJob(queue="q") for _ in range(200))
    jobs = client.claim("q", 200)
    ids, tokens = [j.id for j in jobs], [j.token for j in jobs]
    verbs: list[Callable[[psycopg.Connection[Any]], Any]] = [
        lambda c: c.execute("select dibs.extend_many(%s, %s)", (ids, tokens)),
        lambda c: c.execute("select dibs.extend_many(%s, %s)", (ids[::-1], tokens[::-1])),
        lambda c: c.execute("select dibs.complete_many(%s, %s)", (ids[100::-1], tokens[100::-1])),
        lambda c: c.execute("select dibs.complete_many(%s, %s)", (ids[:100], tokens[:100])),
        lambda c: c.execute("select dibs.cancel_many(%s)", (ids[::-1],)),
        lambda c: c.execute("select dibs.fail_many(%s, %s)", (ids[::-1], tokens[::-1])),
        lambda c: c.execute("select dibs.rescue()"),
    ]
    together = threading.Barrier(len(verbs))

    def run(verb: Callable[[psycopg.Connection[Any]], Any]) -> None:
        with psycopg.connect(dsn, autocommit=True) as conn:
            together.wait()
            for _ in range(10):
                verb(conn)

    with ThreadPoolExecutor(len(verbs)) as pool:
        for done in [pool.submit(run, verb) for verb in verbs]:
            done.result()
    assert client.queues.depth("q").running == 0


def test_an_open_handler_transaction_does_not_stop_the_other_heartbeats(connect: Connect, client: dibs.Client) -> None:
    client.enqueue_many(dibs.NewJob(queue="q") for _ in range(3))
    jobs = client.claim("q", 3)
    handler = connect()
    handler.execute("begin")
    handler.execute("select dibs.complete(%s, %s)", (jobs[1].id, jobs[1].token))
    assert [a.answer for a in client.extend_many(jobs)] == ["ok", "busy", "ok"]
    handler.execute("commit")
    assert [a.answer for a in client.extend_many(jobs)] == ["ok", "lost", "ok"]


def test_retry_and_prune(connect: Connect, client: dibs.Client, clock: Clock) -> None:
    """A job that is being brought back keeps its job row, and prune does not wait for it."""
    made, other_job = [client.enqueue("q", "k", {"n": n}, delay=86400) for n in (1, 2)]
    clock.move(86400)
    for job in client.claim("q", 2):
        client.fail(job, final=True)
    clock.move(25 * 86400)
    while client.upkeep.prune():
        pass
    client.queues.set("q", retention=5 * 86400)
    client.queues.set("long", retention=300 * 86400)  # so that no day is dropped, and rows are trimmed
    one, other = connect(), connect()
    one.execute("begin")
    statement = "select done from dibs.retry(jsonb_build_object('ids', array[%s::uuid]))"
    assert one.execute(statement, (made.id,)).fetchone() == (1,)
    other.execute("set statement_timeout = '5s'")
    assert ("job", "trimmed", 1) in other.execute("select * from dibs.prune()").fetchall()
    one.execute("commit")
    other.execute("select dibs.prune()")
    [job] = client.claim("q", wait=5)
    assert (job.id, job.payload) == (made.id, {"n": 1})
    assert client.status(other_job.id).state is dibs.State.UNKNOWN


def test_a_key_under_an_older_snapshot_is_never_taken_for_a_duplicate(connect: Connect, client: dibs.Client) -> None:
    client.enqueue("q", "k", dedup_key="same")
    [job] = client.claim("q")
    old = connect()
    old.execute("begin isolation level repeatable read")
    old.execute("select count(*) from dibs.fingerprint")
    client.complete(job)
    row = old.execute("select * from dibs.enqueue('q', 'k', dedup_key => 'same')").fetchone()
    old.execute("commit")
    assert row
    assert row[1] == "enqueued"
    assert client.enqueue("q", "k", dedup_key="same") == dibs.types.Enqueued(row[0], dibs.Answer.DUPLICATE)
    client.complete(client.claim("q", wait=5)[0])
    assert client.enqueue("q", "k", dedup_key="same").is_new


def test_two_changes_of_one_queue_at_once_both_hold(connect: Connect, client: dibs.Client, later: Later) -> None:
    client.queues.set("q")
    holder, one, other = connect(), connect(), connect()
    holder.execute("begin")
    holder.execute("select from dibs.queue where name = 'q' for update")
    first = later.start(one, "select dibs.set_queue('q', '{\"lease\": 77}')")
    second = later.start(other, "select dibs.set_queue('q', '{\"max_attempts\": 7}')")
    holder.execute("commit")
    first.result()
    second.result()
    [queue] = client.queues.list()
    assert (queue.lease.total_seconds(), queue.max_attempts) == (77, 7)


def test_upkeep_by_many_at_once_raises_nothing(dsn: str, client: dibs.Client, clock: Clock) -> None:
    client.enqueue("q", "k")
    clock.move(60 * 86400)
    together = threading.Barrier(4)

    def upkeep(_: int) -> None:
        with psycopg.connect(dsn, autocommit=True) as conn:
            together.wait()
            for _ in range(6):
                conn.execute("select from dibs.make_days()")
                conn.execute("select from dibs.prune()")
                conn.execute("select from dibs.maintain()")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(upkeep, range(4)))
    assert {day.outcome for day in client.upkeep.make_days()} == {"exists"}


def test_no_run_begins_before_the_last_one_ended(
    later: Later, connect: Connect, db: psycopg.Connection[Any], client: dibs.Client
) -> None:
    """A claim that began before the release that it then finds has a clock from before, too."""
    job = held_job(client)
    releaser, claimer = connect(), connect()
    releaser.execute("begin")
    releaser.execute("lock table dibs.ready in access exclusive mode")
    claiming = later.start(claimer, "select id, claimed_at from dibs.claim('{q}')")
    assert not claiming.done()
    releaser.execute("select dibs.release(%s, %s)", (job.id, job.token))
    releaser.execute("commit")
    [(id, claimed_at)] = claiming.result()
    assert id == job.id
    assert db.execute("select ended_at <= %s from dibs.attempt where id = %s", (claimed_at, id)).fetchone() == (True,)
    assert db.execute("select claimed_at = %s from dibs.lease where id = %s", (claimed_at, id)).fetchone() == (True,)


@pytest.mark.parametrize("verb", ["complete(%s, %s)", "fail(%s, %s)", "release(%s, %s)", "snooze(%s, %s, '0')"])
def test_an_end_that_waits_for_a_heartbeat_is_an_end(
    verb: str, later: Later, connect: Connect, db: psycopg.Connection[Any], client: dibs.Client
) -> None:
    """The heartbeat leaves a new version of the lease, elsewhere in the table: it is that one that goes."""
    job = held_job(client)
    keeper = connect()
    keeper.execute("begin")
    keeper.execute("select dibs.extend(%s, %s)", (job.id, job.token))
    ending = later.start(connect(), f"select dibs.{verb}", job.id, job.token)
    assert not ending.done()
    keeper.execute("commit")
    ending.result()
    assert tickets(db, job.id) == ([] if verb.startswith("complete") else ["ready"])
    assert db.execute("select count(*) from dibs.attempt where id = %s", (job.id,)).fetchone() == (1,)
