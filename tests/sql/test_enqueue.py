"""Enqueueing: outcomes, ids, limits, and errors that say what to do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest

import dibs
from dibs.ids import IdMaker, id_time

if TYPE_CHECKING:
    from dibs.testing import Clock


def test_a_duplicate_names_the_job_that_is_there(client: dibs.Client) -> None:
    first = client.enqueue("q", "k", dedup_key="order-1")
    assert client.enqueue("q", "k", dedup_key="order-1") == dibs.types.Enqueued(first.id, dibs.Answer.DUPLICATE)
    assert client.enqueue("other", "k", dedup_key="order-1").is_new
    [job] = client.claim("q")
    assert not client.enqueue("q", "k", dedup_key="order-1").is_new
    client.complete(job)
    assert client.enqueue("q", "k", dedup_key="order-1").is_new


def test_a_bulk_enqueue_answers_for_each_item(client: dibs.Client) -> None:
    first = client.enqueue("q", "k", dedup_key="a")
    made = client.enqueue_many(
        [
            dibs.NewJob(queue="q", dedup_key="b"),
            dibs.NewJob(queue="q", dedup_key="a"),
            dibs.NewJob(queue="q"),
            dibs.NewJob(queue="q", dedup_key="b"),
        ]
    )
    assert [m.outcome for m in made] == ["enqueued", "duplicate", "enqueued", "duplicate"]
    assert made[1].id == first.id
    assert made[3].id == made[0].id
    assert client.queues.depth("q").ready == 3


def test_the_same_id_twice_is_one_job(client: dibs.Client) -> None:
    """An enqueue can be repeated after a lost answer."""
    id = IdMaker().make(1)[0]
    assert client.enqueue("q", "k", id=id, dedup_key="x").is_new
    assert client.enqueue("q", "k", id=id, dedup_key="x") == dibs.types.Enqueued(id, dibs.Answer.DUPLICATE)
    client.complete(client.claim("q")[0])
    assert client.enqueue("q", "k", id=id, dedup_key="x") == dibs.types.Enqueued(id, dibs.Answer.DUPLICATE)
    assert client.status(id).state is dibs.State.SUCCEEDED
    assert client.enqueue("q", "k", dedup_key="x").is_new
    twice = IdMaker().make(1)[0]
    made = client.enqueue_many([dibs.NewJob(queue="q", id=twice), dibs.NewJob(queue="q", id=twice)])
    assert [m.outcome for m in made] == ["enqueued", "duplicate"]


def test_ids_from_the_future_and_from_before_retention_are_refused(client: dibs.Client, clock: Clock) -> None:
    clock.freeze(datetime.now(UTC))
    for ahead, fine in ((3500, True), (3700, False), (-29 * 86400, True), (-40 * 86400, False)):
        id = IdMaker(ahead).make(1)[0]
        if fine:
            assert client.enqueue("q", "k", id=id).is_new
        else:
            with pytest.raises(dibs.errors.IdOutOfRange, match=str(id)):
                client.enqueue("q", "k", id=id)
    with pytest.raises(dibs.errors.IdOutOfRange, match="make_id"):
        client.enqueue("q", "k", id=uuid4())


def test_ids_follow_the_databases_clock_even_when_it_jumps(client: dibs.Client, clock: Clock) -> None:
    clock.freeze(datetime(2031, 5, 1, tzinfo=UTC))
    made = client.enqueue("q", "k")
    assert made.is_new
    clock.freeze(datetime(2029, 5, 1, tzinfo=UTC))
    made = client.enqueue("q", "k")
    assert datetime.fromtimestamp(id_time(made.id), UTC).year == 2029


def test_ids_of_sql_and_python_are_alike(db: psycopg.Connection[Any]) -> None:
    row = db.execute("select dibs.make_id(), dibs.now(), dibs.make_id(), dibs.id_time(dibs.make_id())").fetchone()
    assert row
    first, now, second, at = row
    assert first.version == second.version == IdMaker().make(1)[0].version == 7
    assert {first.variant, IdMaker().make(1)[0].variant} == {"specified in RFC 4122"}
    assert abs(id_time(first) - now.timestamp()) < 0.1
    assert abs((at - now).total_seconds()) < 0.1
    ids = IdMaker().make(5000)
    assert ids == sorted(ids)
    assert len(set(ids)) == 5000


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"priority": 101}, dibs.errors.InvalidPolicy, "priority from -100 to 100"),
        ({"priority": -101}, dibs.errors.InvalidPolicy, "priority from -100 to 100"),
        ({"priority": 40_000}, dibs.errors.InvalidPolicy, "priority from -100 to 100"),
        ({"priority": -40_000, "dedup_key": "as a batch"}, dibs.errors.InvalidPolicy, "priority from -100 to 100"),
        ({"ttl": -5}, dibs.errors.InvalidPolicy, "TTL above 0"),
        ({"lease": 0.01}, dibs.errors.InvalidPolicy, "lease from 0.1 s"),
        ({"lease_growth": 0.5}, dibs.errors.InvalidPolicy, "growth from 1"),
        ({"max_attempts": 0}, dibs.errors.InvalidPolicy, "1 to 10000 attempts"),
        ({"history": "some"}, dibs.errors.InvalidPolicy, "all, failures or none"),
        ({"delay": -1}, dibs.InvalidArgument, "0 to 10 years"),
        ({"delay": 1e12}, dibs.InvalidArgument, "0 to 10 years"),
        ({"delay": float("inf")}, dibs.InvalidArgument, "finite"),
        ({"due_at": datetime(2099, 1, 1, tzinfo=UTC)}, dibs.InvalidArgument, "10 years"),
        ({"backoff": dibs.types.Backoff("list", ())}, dibs.errors.InvalidPolicy, "1 to 100 delays"),
        ({"backoff": dibs.constant(-1)}, dibs.errors.InvalidPolicy, "1 to 100 delays"),
        ({"backoff": dibs.exponential(1, factor=0.1)}, dibs.errors.InvalidPolicy, "factor from 1"),
        ({"backoff": dibs.exponential(1, cap=1e9)}, dibs.errors.InvalidPolicy, "cap from 0"),
        ({"backoff": dibs.exponential(1, jitter=2)}, dibs.errors.InvalidPolicy, "jitter from 0"),
        (
            {"backoff": dibs.types.Backoff("fibonacci", (1.0,))},  # type: ignore[arg-type]
            dibs.errors.InvalidPolicy,
            "constant, list or exponential",
        ),
        ({"headers": [1]}, dibs.errors.InvalidPolicy, "headers"),
        ({"content_type": "a\nb"}, dibs.errors.InvalidPolicy, "content type"),
    ],
)
def test_every_bad_option_is_refused_by_name(
    shared_client: dibs.Client, options: dict[str, Any], error: type[dibs.DibsError], words: str
) -> None:
    """SQL refuses a job that is out of bounds, and the connection goes on working."""
    with pytest.raises(error, match=words):
        shared_client.enqueue("q", "k", **options)
    assert shared_client.queues.depth("q").waiting == 0


def test_a_long_ttl_a_long_delay_and_a_time_that_has_passed_are_no_bad_options(client: dibs.Client) -> None:
    assert client.enqueue("q", "k", ttl=timedelta(days=9999)).is_new
    assert client.enqueue("q", "k", delay=timedelta(days=365)).is_new
    assert client.enqueue("q", "k", due_at=datetime(2000, 1, 1, tzinfo=UTC)).is_new


def test_a_bad_job_refuses_its_whole_batch_and_changes_nothing(client: dibs.Client) -> None:
    with pytest.raises(dibs.errors.InvalidPolicy):
        client.enqueue_many([dibs.NewJob(queue="q"), dibs.NewJob(queue="q", priority=999)])
    assert client.queues.list() == []


@pytest.mark.parametrize("kind", ["", "x" * 201, "two\nlines"])
def test_bad_kinds_are_refused(shared_client: dibs.Client, kind: str) -> None:
    with pytest.raises(dibs.errors.InvalidPolicy, match="1 to 200 characters"):
        shared_client.enqueue("q", kind)


@pytest.mark.parametrize("queue", ["-x", "a b", "x" * 128, "ü", "a\nb"])
def test_bad_queue_names_are_refused(shared_client: dibs.Client, queue: str) -> None:
    with pytest.raises(dibs.errors.InvalidPolicy, match="letters, digits"):
        shared_client.enqueue(queue, "k")


def test_from_sql_too_bad_input_gets_a_sentence(db: psycopg.Connection[Any]) -> None:
    for jobs, words in (
        ('{"queue": "q"}', "takes a JSON array of jobs, not a JSON object"),
        ('[{"queue": "q", "kind": "k", "prioritty": 3}]', "did you mean 'priority'"),
        ('[{"kind": "k"}]', "needs a queue"),
        ("[1]", "object"),
    ):
        with pytest.raises(psycopg.DatabaseError, match=words) as raised:
            db.execute("select * from dibs.enqueue_many(%s)", (jobs,))
        assert raised.value.sqlstate
    assert db.execute("select * from dibs.enqueue_many('[]')").fetchall() == []


def test_strict_mode_refuses_unknown_queues_with_a_guess(client: dibs.Client) -> None:
    client.queues.set("billing")
    client.queues.set_strict(True)
    with pytest.raises(dibs.errors.UnknownQueue, match="did you mean 'billing'"):
        client.enqueue("biling", "k")
    assert client.enqueue("billing", "k").is_new
    client.queues.set_strict(False)
    assert client.enqueue("biling", "k").is_new


def test_payloads_come_back_as_they_went(client: dibs.Client) -> None:
    payloads: list[Any] = [
        None, 0, 1.5, 2**70, "", "ünïcödé 🎉", [], {}, {"a": [1, {"b": None}]}, b"", b"\x00\x01\xff", True,
    ]  # fmt: skip
    client.enqueue_many(dibs.NewJob(queue="q", payload=p) for p in payloads)
    assert [j.content for j in client.claim("q", 100)] == payloads
    with pytest.raises(dibs.InvalidArgument):
        client.enqueue("q", "k", "nul \x00 byte")
    with pytest.raises(dibs.InvalidArgument, match="NaN"):
        client.enqueue("q", "k", {"x": [None, float("nan")]})
    with pytest.raises(dibs.InvalidArgument, match="object cannot be sent as JSON"):
        client.enqueue("q", "k", object())


def test_a_payload_above_the_limit_is_refused(client: dibs.Client) -> None:
    client.queues.set("small", payload_limit=1000)
    with pytest.raises(dibs.errors.PayloadTooLarge, match="takes at most 1000"):
        client.enqueue("small", "k", b"x" * 1001)
    with pytest.raises(dibs.errors.PayloadTooLarge, match="queue 'small'"):
        client.enqueue("small", "k", "x" * 1001)
    assert client.enqueue("small", "k", b"x" * 1000).is_new


def test_a_large_payload_is_not_copied_by_a_transition(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    import os

    client.enqueue("q", "k", os.urandom(5_000_000))
    row = db.execute("select pg_current_wal_insert_lsn()").fetchone()
    assert row
    for _ in range(5):
        [(id, token)] = db.execute("select id, token from dibs.claim('{q}')").fetchall()
        db.execute("select dibs.release(%s, %s)", (id, token))
    wrote = db.execute("select pg_current_wal_insert_lsn() - %s::pg_lsn", (row[0],)).fetchone()
    assert wrote
    assert wrote[0] < 500_000


def test_enqueue_without_its_day_goes_to_the_default_partition(
    db: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    clock.move(timedelta(days=100))
    made = client.enqueue("q", "k")
    row = db.execute(
        "select (select relname from pg_class where oid = job.tableoid) from dibs.job where id = %s", (made.id,)
    ).fetchone()
    assert row == ("job_default",)
    client.upkeep.make_days()
    row = db.execute(
        "select (select relname from pg_class where oid = job.tableoid) from dibs.job where id = %s", (made.id,)
    ).fetchone()
    assert row
    assert row[0].startswith("job_20")
    client.complete(client.claim("q")[0])
    assert client.status(made.id).state is dibs.State.SUCCEEDED
