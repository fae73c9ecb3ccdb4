"""Only the holder of the current token can report; everyone else gets a distinct error, never silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import psycopg
import pytest

import dibs

if TYPE_CHECKING:
    from dibs.testing import Clock

VERBS = {
    "extend": "select dibs.extend(%s, %s)",
    "complete": "select dibs.complete(%s, %s)",
    "fail": "select * from dibs.fail(%s, %s, 'boom')",
    "snooze": "select dibs.snooze(%s, %s, '1 minute')",
    "release": "select dibs.release(%s, %s)",
}


def refused(db: psycopg.Connection[Any], verb: str, id: Any, token: Any) -> None:
    with pytest.raises(psycopg.DatabaseError) as raised:
        db.execute(VERBS[verb], (id, token))
    assert raised.value.sqlstate == "DI001"
    assert str(id) in str(raised.value)


@pytest.mark.parametrize("verb", VERBS)
def test_stale_wrong_and_foreign_tokens_are_refused(
    verb: str, db: psycopg.Connection[Any], client: dibs.Client, clock: Clock
) -> None:
    clock.freeze()
    client.enqueue("q", "k")
    client.enqueue("other", "k")
    [stale] = client.claim("q")
    [foreign] = client.claim("other")
    clock.move(31)
    client.upkeep.rescue()
    [current] = client.claim("q")
    refused(db, verb, current.id, stale.token)
    refused(db, verb, current.id, foreign.token)
    refused(db, verb, current.id, uuid4())
    refused(db, verb, uuid4(), current.token)
    assert client.status(current.id).state is dibs.State.RUNNING
    db.execute(VERBS[verb], (current.id, current.token))


REPEAT = "select id, token, attempt from dibs.claim('{q}', 2, worker => %s, token => %s, repeats => true)"


def register(db: psycopg.Connection[Any]) -> Any:
    return db.execute("select worker from dibs.register_worker('w')").fetchall()[0][0]


def test_a_repeated_claim_returns_what_its_token_holds(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    client.enqueue_many(dibs.NewJob(queue="q") for _ in range(5))
    token, worker = uuid4(), register(db)
    first = db.execute(
        "select id, token, attempt from dibs.claim('{q}', 2, %s, token => %s)", (worker, token)
    ).fetchall()
    assert {row[1] for row in first} == {token}
    assert db.execute(REPEAT, (worker, token)).fetchall() == first
    client.queues.pause("q")
    assert db.execute(REPEAT, (worker, token)).fetchall() == first
    client.queues.resume("q")
    db.execute("select dibs.complete(%s, %s)", first[0][:2])
    assert db.execute(REPEAT, (worker, token)).fetchall() == first[1:]
    assert client.queues.depth("q").running == 1


def test_a_repeated_claim_that_was_never_made_is_made(db: psycopg.Connection[Any], client: dibs.Client) -> None:
    client.enqueue_many(dibs.NewJob(queue="q") for _ in range(5))
    token = uuid4()
    made = db.execute(REPEAT, (None, token)).fetchall()
    assert [row[1:] for row in made] == [(token, 1)] * 2
    assert db.execute(REPEAT, (None, token)).fetchall() == made


def test_another_worker_with_a_token_gets_nothing_of_its_holder(
    db: psycopg.Connection[Any], client: dibs.Client
) -> None:
    held, free = client.enqueue("q", "k"), client.enqueue("q", "k")
    token, one, other = uuid4(), register(db), register(db)
    db.execute("select from dibs.claim('{q}', 1, %s, token => %s)", (one, token))
    assert [row[0] for row in db.execute(REPEAT, (other, token))] == [free.id]
    assert client.status(held.id).state is dibs.State.RUNNING
    assert db.execute(REPEAT.replace("{q}", "{other}"), (one, token)).fetchall() == []


@pytest.mark.parametrize(
    "token", ["00000000-0000-0000-0000-000000000000", "018f6d2e-0000-7000-8000-000000000001", None]
)
def test_a_token_that_can_be_guessed_is_refused(
    db: psycopg.Connection[Any], client: dibs.Client, token: str | None
) -> None:
    client.enqueue("q", "k")
    with pytest.raises(psycopg.DatabaseError, match="random UUID") as raised:
        db.execute(REPEAT, (None, token))
    assert raised.value.sqlstate == "DI010"


@pytest.mark.parametrize("verb", ["complete", "fail", "snooze", "release"])
def test_the_same_token_again_answers_already_and_any_other_is_refused(
    verb: str, db: psycopg.Connection[Any], client: dibs.Client
) -> None:
    client.enqueue("q", "k")
    [job] = client.claim("q")
    db.execute(VERBS[verb], (job.id, job.token))
    before = client.show(job.id)
    again = db.execute(VERBS[verb], (job.id, job.token)).fetchone()
    if verb != "fail":
        assert again == ("already",)
    assert client.show(job.id) == before
    refused(db, verb, job.id, uuid4())
    for other in {"complete", "fail", "snooze", "release"} - {verb}:
        refused(db, other, job.id, job.token)


def test_every_refusal_has_its_class_in_python(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    client.enqueue("q", "k")
    [job] = client.claim("q")
    clock.move(60)
    client.upkeep.rescue()
    for verb in (client.extend, client.complete, client.fail, client.release):
        with pytest.raises(dibs.LeaseLost, match=str(job.id)):
            verb(job)
    with pytest.raises(dibs.LeaseLost):
        client.snooze(job, 5)


def test_a_batch_answers_for_each_item(client: dibs.Client, clock: Clock) -> None:
    """One poison item must not fail the batch."""
    clock.freeze()
    client.enqueue_many(dibs.NewJob(queue="q", payload=n) for n in range(4))
    done, mine, lost, cancelled = client.claim("q", 4)
    client.complete(done)
    client.cancel(cancelled.id)
    clock.move(31)
    client.extend_many([mine, cancelled], 600)
    client.upkeep.rescue()
    assert [a.answer for a in client.extend_many([done, mine, lost, cancelled])] == ["lost", "ok", "lost", "cancel"]
    assert [a.answer for a in client.complete_many([done, mine, lost])] == ["already", "ok", "lost"]
    failed = client.fail_many([mine, cancelled], ["late", "stopped"])
    assert [(f.answer, f.state) for f in failed] == [("lost", None), ("ok", "cancelled")]


def test_an_expired_lease_is_still_the_holders_until_it_is_rescued(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    client.enqueue("q", "k")
    [job] = client.claim("q")
    clock.move(3600)
    assert client.extend(job) == "ok"
    assert client.upkeep.rescue() == []
    assert client.complete(job) == "ok"


def test_tokens_are_random_and_one_for_each_claim(client: dibs.Client) -> None:
    """(id, attempt) is issued again after a failover; 122 random bits are not."""
    client.enqueue_many(dibs.NewJob(queue="q") for _ in range(20))
    batches = [client.claim("q", 5) for _ in range(4)]
    assert [len({j.token for j in batch}) for batch in batches] == [1] * 4
    assert len({batch[0].token for batch in batches}) == 4
    assert {batch[0].token.version for batch in batches} == {4}


def test_arrays_that_do_not_fit_are_refused(db: psycopg.Connection[Any]) -> None:
    for statement in (
        "select dibs.complete_many(array[gen_random_uuid()], '{}')",
        "select dibs.extend_many(array[null::uuid], array[gen_random_uuid()])",
        "select dibs.complete_many(array[gen_random_uuid()], array[gen_random_uuid()], array[null, null]::jsonb[])",
    ):
        with pytest.raises(psycopg.DatabaseError) as raised:
            db.execute(statement)
        assert raised.value.sqlstate == "DI010"


def test_the_same_id_twice_in_a_batch_is_told_apart_by_its_token(client: dibs.Client) -> None:
    client.enqueue("q", "k")
    [job] = client.claim("q")
    wrong = msgspec.structs.replace(job, _token=uuid4().bytes)
    follow = [[dibs.NewJob(queue="wrong")], [dibs.NewJob(queue="right", payload=b"bytes")]]
    assert [a.answer for a in client.complete_many([wrong, job], follow_ups=follow)] == ["lost", "ok"]
    assert (client.queues.depth("wrong").ready, client.claim("right")[0].content) == (0, b"bytes")


def test_a_run_that_is_completed_twice_in_a_batch_has_the_follow_ups_of_its_first_item(client: dibs.Client) -> None:
    client.enqueue_many(dibs.NewJob(queue="q") for _ in range(2))
    one, other = client.claim("q", 2)
    follow = [[dibs.NewJob(queue="a")], [dibs.NewJob(queue="b")] * 2, [dibs.NewJob(queue="c")]]
    assert [a.answer for a in client.complete_many([one, other, one], follow_ups=follow)] == ["ok"] * 3
    assert [client.queues.depth(queue).ready for queue in ("a", "b", "c")] == [1, 2, 0]


@pytest.mark.parametrize("wrong", ['[{"queue": "next"}]', '["next"]', "[[], []]", "{}"])
def test_follow_ups_of_another_form_are_refused(client: dibs.Client, db: psycopg.Connection[Any], wrong: str) -> None:
    client.enqueue("q", "k")
    [job] = client.claim("q")
    with pytest.raises(psycopg.DatabaseError, match="each element is null or an array of jobs") as raised:
        db.execute("select dibs.complete_many(array[%s], array[%s], follow_ups => %s)", (job.id, job.token, wrong))
    assert raised.value.sqlstate == "DI010"
    assert client.complete(job) == "ok"


def test_a_cancel_without_a_word_has_a_reason(client: dibs.Client) -> None:
    client.enqueue_many(dibs.NewJob(queue="q") for _ in range(2))
    [running] = client.claim("q")
    [waiting] = client.find_jobs({"states": ["ready"]}).jobs
    for job in (running.id, waiting.id):
        client.cancel(job, reason="")
    client.release(running)
    assert [client.status(job).reason for job in (running.id, waiting.id)] == ["cancelled", "cancelled"]


@pytest.mark.parametrize("verb", ["complete", "fail", "release"])
def test_a_batch_of_thousands_is_linear(db: psycopg.Connection[Any], client: dibs.Client, verb: str) -> None:
    client.enqueue_many(dibs.NewJob(queue="q") for _ in range(8000))
    jobs = client.claim("q", 8000)
    db.execute("set statement_timeout = '20s'")
    held = [j.id for j in jobs], [*(j.token for j in jobs[:-1]), uuid4()]
    answers = db.execute(f"select answer from dibs.{verb}_many(%s, %s)", held).fetchall()
    assert [a for (a,) in answers] == ["ok"] * 7999 + ["lost"]
