"""Bulk enqueues from an iterator, and the one job that is sent by itself."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dibs
from dibs.client.bulk import CHUNK
from dibs.db import calls
from dibs.db.calls.encoder import encode
from dibs.events import JobEnqueued
from dibs.ids import IdMaker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dibs.testing import Clock

NOW = datetime(2031, 5, 1, 12, tzinfo=UTC)
OPTIONS: dict[str, Any] = {
    "payload": st.sampled_from([None, 1, {"a": [None]}, b"", b"\0\xff", "ünïcödé"]),
    "headers": st.sampled_from([{}, {"a": {"b": None}}, [1]]),
    "content_type": st.sampled_from(["text/plain", "", "a\nb"]),
    "priority": st.sampled_from([-101, 0, 5, True, 1.5, 2**40]),
    "delay": st.sampled_from([-1, 0, 1.25, timedelta(minutes=3), 1e12]),
    "due_at": st.sampled_from([NOW + timedelta(hours=1), datetime(2099, 1, 1, tzinfo=UTC)]),
    "ttl": st.sampled_from([-1, 90, timedelta(days=9999)]),
    "deadline": st.sampled_from([NOW, datetime(9500, 1, 1, tzinfo=UTC)]),
    "max_attempts": st.sampled_from([0, 3, "3"]),
    "history": st.sampled_from(["none", "some"]),
    "backoff": st.sampled_from([dibs.constant(2), dibs.constant(-1)]),
    "dedup_key": st.just("x"),
    "group": st.just("g"),
    "lease": st.sampled_from([5, 0]),
}


def tried(client: dibs.Client, db: psycopg.Connection[Any], call: calls.Call[Any]) -> Any:
    """What a call writes, or how it is refused; nothing of it stays."""
    try:
        with db.transaction(force_rollback=True):
            client._run(call, db)
            return db.execute(
                "select to_jsonb(j) - 'id', to_jsonb(r) - 'id' from dibs.job as j join dibs.ready as r using (id)"
            ).fetchall()
    except dibs.DibsError as error:
        return type(error)


@settings(max_examples=100)
@given(
    options=st.lists(st.sampled_from(list(OPTIONS)), max_size=3, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: OPTIONS[name] for name in names})
    )
)
def test_one_job_is_sent_as_many_are(
    client: dibs.Client, db: psycopg.Connection[Any], clock: Clock, options: dict[str, Any]
) -> None:
    clock.freeze(NOW)
    id = IdMaker((NOW - datetime.now(UTC)).total_seconds()).make(1)[0]
    client.queues.set("q")
    job = dibs.NewJob(queue="q", kind="k", **options)
    many = calls.jobs.enqueue_many([encode(job)], [id.hex], [job.body], fresh=True)
    assert tried(client, db, calls.jobs.enqueue(job, id.hex, fresh=True)) == tried(client, db, many)


class Payload(dict[str, int]):
    """Something that can be counted while it is alive."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def test_an_iterator_is_read_while_its_jobs_are_sent(client: dibs.Client) -> None:
    """A million jobs never are in memory together; ``python -m bench enqueue`` measures it."""
    alive: WeakSet[Payload] = WeakSet()
    most = 0

    def read() -> Iterator[dibs.NewJob]:
        nonlocal most
        for n in range(10 * CHUNK):
            payload = Payload(n=n)
            alive.add(payload)
            most = max(most, len(alive))
            yield dibs.NewJob(queue="q", payload=payload)

    made = client.enqueue_many(read())
    assert most <= 3 * CHUNK
    assert len({m.id for m in made}) == client.queues.depth("q").ready == 10 * CHUNK
    assert client.claim("q")[0].id == made[0].id


@pytest.mark.parametrize(
    "bad", [dibs.NewJob(queue="q", payload=float("nan")), "no job", dibs.NewJob(queue="q", priority=999)]
)
def test_an_iterator_that_fails_halfway_leaves_nothing(
    client: dibs.Client, db: psycopg.Connection[Any], bad: Any
) -> None:
    def read() -> Iterator[Any]:
        yield from (dibs.NewJob(queue="q", payload=n) for n in range(2 * CHUNK))
        yield bad

    with pytest.raises(dibs.DibsError):
        client.enqueue_many(read())
    assert client.queues.list() == []
    if not isinstance(bad, dibs.NewJob) or bad.priority is None:
        with db.transaction():
            with pytest.raises(dibs.InvalidArgument):
                client.enqueue_many(read(), conn=db)
            assert db.execute("select from dibs.job").fetchall() == []  # Known before the first was sent.


ERRORS = [
    psycopg.OperationalError("the connection of the iterator is lost"),
    psycopg.errors.SerializationFailure("of the iterator"),
    dibs.errors.ConnectionLost("of the iterator"),
    dibs.errors.IdOutOfRange("of the iterator"),
]


def read_until(error: Exception, jobs: int) -> Iterator[dibs.NewJob]:
    yield from (dibs.NewJob(queue="q") for _ in range(jobs))
    raise error


@pytest.mark.parametrize("jobs", [1, CHUNK // 2, CHUNK * 3 // 2])
@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_an_iterator_that_loses_its_own_database_leaves_nothing(
    client: dibs.Client, db: psycopg.Connection[Any], error: Exception, jobs: int
) -> None:
    """Its error is no outage of ours: a repeat would send the jobs that were read before as if they were all."""
    for conn in (None, db):
        with pytest.raises(type(error)) as raised:
            client.enqueue_many(read_until(error, jobs), conn=conn)
        assert raised.value is error
    assert client.queues.list() == []


async def test_an_iterator_that_loses_its_own_database_leaves_nothing_async(dsn: str) -> None:
    async with dibs.AsyncClient(dsn) as client:
        with pytest.raises(psycopg.OperationalError, match="of the iterator"):
            await client.enqueue_many(read_until(ERRORS[0], CHUNK * 3 // 2))
        assert await client.queues.list() == []


async def test_handles_of_a_bulk_enqueue(dsn: str) -> None:
    app = dibs.App(dsn, queue="q")

    @app.task
    def double(n: int) -> int:
        return 2 * n

    told: list[JobEnqueued] = []
    app.on(JobEnqueued)(told.append)
    jobs = await double.aenqueue_many(double.call(n) for n in range(CHUNK + 1))
    assert [event.id for event in told] == [job.id for job in jobs]
    assert {(event.queue, event.kind) for event in told} == {("q", double.name)}
    assert (jobs[-1].returns, jobs[-1].is_new, jobs[-1].outcome) == (int, True, "enqueued")
    await app.aclose()


def calls_of(do: Callable[[], object]) -> int:
    """How many functions are called, of Python and of C."""
    for _ in range(10):  # The driver prepares a statement that comes again.
        do()
    count = 0

    def seen(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(seen)
    try:
        do()
    finally:
        sys.setprofile(None)
    return count


def test_one_job_costs_little_more_than_its_statement(dsn: str, db: psycopg.Connection[Any]) -> None:
    """What the driver does for a statement is the measure; ``python -m bench enqueue`` measures the time."""
    app = dibs.App(dsn, queue="q")

    @app.task
    def send(user: int, lang: str = "en") -> None: ...

    held = [app.client.claim("q")[0] for _ in range(11) if send.enqueue(1)]
    bare = calls_of(lambda: db.execute("select %s::jsonb", ('{"user": 1}',)))
    assert calls_of(lambda: app.client.enqueue("q", "k", {"user": 1})) < 2.5 * bare
    assert calls_of(lambda: send.enqueue(1)) < 3.2 * bare
    assert calls_of(lambda: app.client.complete(held.pop())) < 2.7 * bare
    app.close()


@pytest.mark.parametrize("text", [False, True])
def test_a_bulk_with_a_given_id_gets_other_ids_by_the_time_of_the_database(
    client: dibs.Client, clock: Clock, text: bool
) -> None:
    """Only the ids that were made here are made again."""
    client.now()
    client.enqueue("q", "k")  # It learns the time, which then moves.
    clock.move(timedelta(days=50))
    given = IdMaker(50 * 86400).make(1)[0]
    jobs = [dibs.NewJob(queue="q", id=str(given) if text else given), dibs.NewJob(queue="q")]  # type: ignore[arg-type]
    made = client.enqueue_many(jobs)
    assert [m.outcome for m in made] == ["enqueued"] * 2
    assert made[0].id == given
    assert {job.id for job in client.claim("q", 9)} >= {m.id for m in made}


def test_a_bulk_of_given_ids_out_of_range_is_refused(client: dibs.Client) -> None:
    old = IdMaker(-50 * 86400).make(2)
    for ids in (old, old[:1]):
        jobs = [*(dibs.NewJob(queue="q", id=id) for id in ids), *[dibs.NewJob(queue="q")] * (2 - len(ids))]
        with pytest.raises(dibs.errors.IdOutOfRange):
            client.enqueue_many(jobs)
    assert client.queues.list() == []
