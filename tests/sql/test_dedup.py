"""Dedup keys: how long a job holds one, what a second enqueue does, and its answer."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import dibs
from tests.sql.test_races import Later, later

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from dibs.job import JobOptions
    from dibs.testing import Clock
    from tests.conftest import Connect

__all__ = ["later"]


def keyed(payload: Any = None, **options: Any) -> dibs.NewJob:
    return dibs.NewJob(queue="q", kind="k", payload=payload, **{"dedup_key": "same", **options})


def keys(db: psycopg.Connection[Any]) -> int:
    row = db.execute("select count(*) from dibs.fingerprint").fetchone()
    assert row
    return int(row[0])


def enqueue(client: dibs.Client, payload: Any = None, **options: Any) -> dibs.types.Enqueued:
    return client.enqueue_many([keyed(payload, **options)])[0]


# Scope


def test_a_key_of_scope_waiting_is_free_once_its_job_is_claimed(
    client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    first = enqueue(client, dedup_scope="waiting")
    assert enqueue(client, dedup_scope="waiting") == dibs.types.Enqueued(first.id, dibs.Answer.DUPLICATE)
    [running] = client.claim("q")
    second = enqueue(client, dedup_scope="waiting")
    assert second.is_new
    assert enqueue(client) == dibs.types.Enqueued(second.id, dibs.Answer.DUPLICATE)
    client.complete(running)
    assert enqueue(client) == dibs.types.Enqueued(second.id, dibs.Answer.DUPLICATE), (
        "the first gives back no key but its own"
    )
    client.complete(client.claim("q", wait=5)[0])
    assert keys(db) == 0


def test_a_job_that_is_retried_has_its_key_again_unless_another_took_it(client: dibs.Client) -> None:
    first = enqueue(client, dedup_scope="waiting")
    client.fail(client.claim("q")[0], delay=0)
    assert enqueue(client, dedup_scope="waiting") == dibs.types.Enqueued(first.id, dibs.Answer.DUPLICATE)
    [running] = client.claim("q", wait=5)
    second = enqueue(client, dedup_scope="waiting")
    client.fail(running, delay=0)
    assert enqueue(client, dedup_scope="waiting") == dibs.types.Enqueued(second.id, dibs.Answer.DUPLICATE)
    assert client.queues.depth("q").ready == 2


def test_a_window_outlives_the_job_and_ends(client: dibs.Client, clock: Clock, db: psycopg.Connection[Any]) -> None:
    clock.freeze()
    first = enqueue(client, dedup_for=60)
    client.complete(client.claim("q")[0])
    clock.move(59)
    assert enqueue(client, dedup_for=60) == dibs.types.Enqueued(first.id, dibs.Answer.DUPLICATE)
    assert db.execute("select dibs.forget()").fetchone() == (0,)
    clock.move(1)
    second = enqueue(client, dedup_for=60)
    assert second.is_new
    clock.move(61)
    assert enqueue(client, dedup_for=60).is_new, "a window alone does not care whether its job still waits"
    clock.move(61)
    assert db.execute("select dibs.forget()").fetchone() == (1,)
    assert keys(db) == 0


@pytest.mark.parametrize("scope", ["waiting", "unfinished"])
def test_a_window_and_a_scope_hold_for_as_long_as_the_longer(client: dibs.Client, clock: Clock, scope: Any) -> None:
    clock.freeze()
    first = enqueue(client, dedup_scope=scope, dedup_for=60, ttl=timedelta(days=30))
    clock.move(100)
    assert enqueue(client) == dibs.types.Enqueued(first.id, dibs.Answer.DUPLICATE)
    [job] = client.claim("q")
    assert client.enqueue("q", "k", dedup_key="same").is_new == (scope == "waiting")
    client.complete(job)
    assert enqueue(client, dedup_key="same").is_new == (scope == "unfinished")


def test_a_job_that_ended_badly_frees_its_window(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    for end in ("cancel", "fail", "expire"):
        made = enqueue(client, dedup_for=3600, ttl=60)
        assert made.is_new, end
        if end == "cancel":
            client.cancel(made.id)
        elif end == "fail":
            client.fail(client.claim("q")[0], final=True)
        else:
            clock.move(61)
            assert client.upkeep.expire() == 1
    assert enqueue(client).is_new


# The key


def test_a_key_made_of_the_arguments(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    def ask(kind: str, payload: Any, queue: str = "q") -> dibs.types.Enqueued:
        return client.enqueue(queue, kind, payload, dedup=True)

    first = ask("k", {"a": 1, "b": [1, {"c": None}]})
    assert ask("k", {"b": [1, {"c": None}], "a": 1}) == dibs.types.Enqueued(first.id, dibs.Answer.DUPLICATE)
    others = [
        ("k", {"a": 1}),
        ("k", {"b": [{"c": None}, 1], "a": 1}),
        ("j", {"a": 1}),
        ("k", None),
        ("k", b"{}"),
        ("k", {}),
    ]
    assert all(ask(kind, payload).is_new for kind, payload in others)
    assert not any(ask(kind, payload).is_new for kind, payload in others)
    assert ask("k", {"a": 1, "b": [1, {"c": None}]}, "other").is_new
    assert client.enqueue("q", "k", {"a": 1}, dedup=False).is_new
    assert client.enqueue("q", "k", {"a": 1}, dedup=True, dedup_key="given").is_new, "a key that is given wins"
    row = db.execute("select outcome from dibs.enqueue('q', 'k', '{\"a\": 1}', dedup => true)").fetchone()
    assert row == ("duplicate",)


def test_only_a_hash_is_kept(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    enqueue(client, dedup_key="secret@example.org")
    rows = db.execute(
        "select f::text from dibs.fingerprint as f union all select j::text from dibs.job as j"
    ).fetchall()
    assert rows
    assert not any("secret" in text for (text,) in rows)


# On a duplicate


def test_refuse_raises_and_names_the_job(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    first = enqueue(client, on_duplicate="refuse")
    assert first.is_new
    with pytest.raises(dibs.DuplicateJob, match=str(first.id)) as raised:
        client.enqueue_many([dibs.NewJob(queue="q"), keyed(on_duplicate="refuse")])
    assert raised.value.sqlstate == "DI040"
    assert client.queues.depth("q").ready == 1, "all or none"
    with pytest.raises(dibs.DuplicateJob, match="job 2"):
        client.enqueue_many([keyed(dedup_key="new"), keyed(dedup_key="new", on_duplicate="refuse")])
    assert keys(db) == 1


def test_a_job_that_refuses_is_never_the_duplicate_of_another_in_its_batch(client: dibs.Client) -> None:
    held = enqueue(client)
    batch = [keyed(1, on_duplicate="refuse"), keyed(2, on_duplicate="replace")]
    with pytest.raises(dibs.DuplicateJob, match="job 1 of the call was refused"):
        client.enqueue_many(batch)
    assert client.status(held.id).state is dibs.State.READY
    client.cancel(held.id)
    with pytest.raises(dibs.DuplicateJob, match="job 1 of the call was refused"):
        client.enqueue_many(batch)


def test_refuse_names_the_queue_and_not_the_shard(client: dibs.Client) -> None:
    client.queues.set("q", shards=2)
    enqueue(client, on_duplicate="refuse")
    with pytest.raises(dibs.DuplicateJob, match="of queue 'q' has its dedup key"):
        enqueue(client, on_duplicate="refuse")


def test_replace_while_waiting_is_a_new_job_and_the_old_one_says_so(
    client: dibs.Client, clock: Clock, db: psycopg.Connection[Any]
) -> None:
    clock.freeze()
    old = enqueue(client, 1, on_duplicate="replace", delay=5)
    clock.move(3)
    new = enqueue(client, 2, on_duplicate="replace", delay=5)
    assert (new.outcome, new.is_new, new.id != old.id) == ("replaced", True, True)
    assert client.status(old.id).state is dibs.State.CANCELLED
    assert f"replaced by job {new.id}" in client.why(old.id)
    clock.move(3)
    assert client.claim("q") == []
    clock.move(2)
    [job] = client.claim("q")
    assert (job.id, job.payload) == (new.id, 2)
    third = enqueue(client, 3, on_duplicate="replace")
    assert third.outcome == "enqueued", "what runs is not replaced: a new job"
    client.complete(job)
    assert enqueue(client) == dibs.types.Enqueued(third.id, dibs.Answer.DUPLICATE)
    assert keys(db) == 1


def test_a_job_that_is_just_being_claimed_is_not_waited_for(connect: Connect, client: dibs.Client) -> None:
    old = enqueue(client)
    claimer = connect()
    claimer.execute("begin")
    assert claimer.execute("select id from dibs.claim('{q}')").fetchall() == [(old.id,)]
    new = enqueue(client, on_duplicate="replace")
    assert new.outcome == "enqueued"
    claimer.execute("commit")
    assert client.status(old.id).state is dibs.State.RUNNING
    assert client.status(new.id).state is dibs.State.READY


# Batches


def outcomes(made: Sequence[dibs.types.Enqueued]) -> list[tuple[int, str]]:
    """For each answer, the position of the first answer with the same id, and the outcome."""
    ids = [m.id for m in made]
    return [(ids.index(m.id), m.outcome) for m in made]


def test_a_batch_answers_for_each_item_also_with_a_key_twice(client: dibs.Client) -> None:
    made = client.enqueue_many([keyed(0), keyed(1), keyed(2, dedup_key="other"), dibs.NewJob(queue="q"), keyed(4)])
    assert outcomes(made) == [
        (0, "enqueued"), (0, "duplicate"), (2, "enqueued"), (3, "enqueued"), (0, "duplicate")
    ]  # fmt: skip
    made = client.enqueue_many([keyed(5), keyed(6, on_duplicate="replace"), keyed(7), keyed(8, on_duplicate="replace")])
    assert [m.id for m in made] == [made[3].id] * 4, "the last that replaces stands for the key"
    assert [m.outcome for m in made] == ["duplicate", "duplicate", "duplicate", "replaced"]
    payloads = [job.payload for job in client.claim("q", 10)]
    assert sorted(payloads, key=str) == [2, 8, None]


def test_a_repeat_of_a_batch_adds_nothing_whatever_ended_in_the_meantime(
    client: dibs.Client, clock: Clock, db: psycopg.Connection[Any]
) -> None:
    """The answer was lost, so the same batch is sent again."""
    clock.freeze()
    client.queues.set("full", max_depth=2)
    enqueue(client, "there before", dedup_key="kept")
    enqueue(client, "to be replaced", dedup_key="debounced")
    ids = [row[0] for row in db.execute("select dibs.make_id() from generate_series(1, 12)")]
    options: list[JobOptions] = [
        {"dedup_key": "twice"}, {"dedup_key": "twice"}, {"dedup": True}, {"dedup": True}, {},
        {"dedup_key": "debounced", "on_duplicate": "replace"}, {"dedup_key": "new", "on_duplicate": "refuse"},
        {"dedup_key": "window", "dedup_for": 60}, {"dedup_key": "waits", "dedup_scope": "waiting", "priority": 9},
        {"dedup_key": "window", "dedup_for": 60},
    ]  # fmt: skip
    batch = [
        dibs.NewJob(queue="q", kind="k", id=id, payload="p", **given) for id, given in zip(ids, options, strict=False)
    ]
    bounded = [dibs.NewJob(queue="full", id=id) for id in ids[10:]]
    first = client.enqueue_many([*batch, *bounded])
    total = len(client.find_jobs(limit=100).jobs)
    for job in client.claim("q", 100):
        client.complete(job)
    clock.move(61)
    again = client.enqueue_many([*batch, *bounded])
    assert [m.id for m in again] == [m.id for m in first]
    assert {m.outcome for m in again} == {"duplicate"}
    assert len(client.find_jobs(limit=100).jobs) == total
    assert client.queues.depth("q").ready == 0


# Retry and cancel


def test_a_retry_takes_the_key_again_by_its_scope(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    dead: dict[str, UUID] = {}
    for scope in ("waiting", "unfinished", "window"):
        made = client.enqueue("q", "k", dedup_key=scope, dedup_scope=scope, dedup_for=60 if scope == "window" else 1)
        client.cancel(made.id)
        dead[scope] = made.id
    clock.move(5)
    held = client.enqueue("q", "k", dedup_key="waiting", dedup_scope="waiting")
    other = client.enqueue("q", "k", dedup_key="unfinished")
    client.enqueue("q", "k", dedup_key="window", dedup_for=60)
    done = client.retry({"ids": list(dead.values())})
    assert (done.matched, done.done) == (3, 1)
    assert {r.id: r.reason for r in done.refused} == {dead["waiting"]: "duplicate", dead["unfinished"]: "duplicate"}
    claimed = {job.id for job in client.claim("q", 10)}
    assert claimed == {held.id, other.id, dead["window"], *claimed}
    done = client.retry({"ids": [dead["waiting"], dead["unfinished"]]})
    assert [(r.id, r.reason) for r in done.refused] == [(dead["unfinished"], "duplicate")]
    assert client.enqueue("q", "k", dedup_key="waiting") == dibs.types.Enqueued(dead["waiting"], dibs.Answer.DUPLICATE)


def test_cancel_by_key(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    with pytest.raises(dibs.errors.UnknownQueue):
        client.cancel_key("q", "same")
    made = enqueue(client)
    assert client.cancel_key("q", "other") is None
    assert client.cancel_key("q", "same", "no longer wanted") == dibs.types.Answered(made.id, dibs.Answer.CANCELLED)
    assert "no longer wanted" in client.why(made.id)
    assert client.cancel_key("q", "same") is None
    made = enqueue(client, dedup_for=60)
    [job] = client.claim("q")
    assert client.cancel_key("q", "same") == dibs.types.Answered(made.id, dibs.Answer.REQUESTED)
    client.complete(job)
    assert client.cancel_key("q", "same") == dibs.types.Answered(made.id, dibs.Answer.ENDED)
    clock.move(61)
    assert client.cancel_key("q", "same") is None


# Bad input


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dedup_key": "k", "dedup_scope": "WAITING"}, "did you mean 'waiting'"),
        ({"dedup_key": "k", "on_duplicate": "REPLACE"}, "did you mean 'replace'"),
        ({"dedup_key": "k", "dedup_for": 0}, "above 0"),
        ({"dedup_key": "k", "dedup_for": -1}, "above 0"),
        ({"dedup_key": "k", "dedup_for": 1e9}, "10 years"),
        ({"dedup_key": "k", "dedup_for": 1e300}, ""),
        ({"dedup_key": "k", "dedup_scope": "window"}, "no dedup_for"),
        ({"dedup_for": 60}, "dedup_key"),
        ({"on_duplicate": "replace", "dedup": False}, "dedup_key"),
        ({"dedup_keys": "k"}, "did you mean 'dedup_key'"),
    ],
)
def test_bad_dedup_options_are_refused_with_a_sentence(
    client: dibs.Client, db: psycopg.Connection[Any], options: dict[str, Any], words: str
) -> None:
    """Every option has a bound, and an unknown value is refused."""
    client.queues.set("q")
    job = psycopg.types.json.Jsonb([{"queue": "q", "kind": "k", **options}])
    with pytest.raises(psycopg.DatabaseError) as raised:
        db.execute("select * from dibs.enqueue_many(%s)", (job,))
    assert raised.value.sqlstate is not None
    assert raised.value.sqlstate == "DI010" or raised.value.sqlstate.startswith("22")
    assert words in str(raised.value) + str(raised.value.diag.message_hint)
    assert client.queues.depth("q").waiting == 0


# Races


def test_twenty_at_once_make_one_job(connect: Connect, client: dibs.Client) -> None:
    """One job, and 19 answers that name it (or, told to replace, 19 that were replaced)."""
    conns = [connect() for _ in range(20)]
    answers = {
        "keep": ["duplicate"] * 19 + ["enqueued"],
        "refuse": ["DI040"] * 19 + ["enqueued"],
        "replace": ["enqueued"] + ["replaced"] * 19,
    }
    for scope, mode in itertools.product(("waiting", "unfinished", "window"), answers):
        queue = f"{scope}-{mode}"
        client.queues.set(queue)
        made = ask_together(conns, queue, scope, mode)
        assert sorted(outcome for _, outcome in made) == answers[mode], queue
        [left] = client.claim(queue, 10)
        named = {id for id, _ in made if id is not None}
        assert named == {left.id} if mode != "replace" else left.id in named, queue
        assert client.queues.depth(queue).cancelled == (19 if mode == "replace" else 0), queue


def ask_together(
    conns: list[psycopg.Connection[Any]], queue: str, scope: str, mode: str
) -> list[tuple[UUID | None, str]]:
    """Enqueue the same key from all connections at once, and return their answers."""
    together = threading.Barrier(len(conns))

    def ask(n: int, conn: psycopg.Connection[Any]) -> tuple[UUID | None, str]:
        together.wait()
        try:
            row = conn.execute(
                "select * from dibs.enqueue(%s, 'k', to_jsonb(%s::int), dedup_key => 'same', dedup_scope => %s,"
                " dedup_for => '1 hour', on_duplicate => %s)",
                (queue, n, scope, mode),
            ).fetchone()
        except psycopg.DatabaseError as error:
            return None, error.sqlstate or ""
        assert row
        return row[0], row[1]

    with ThreadPoolExecutor(len(conns)) as pool:
        return list(pool.map(ask, range(len(conns)), conns))


def test_batches_of_the_same_keys_in_other_orders_never_deadlock(dsn: str, client: dibs.Client) -> None:
    client.queues.set("q")
    together = threading.Barrier(6)

    def ask(n: int) -> None:
        batch = [
            keyed(dedup_key=str(k), dedup_scope="waiting", on_duplicate=["keep", "replace"][n % 2]) for k in range(30)
        ]
        with dibs.Client(dsn) as mine:
            together.wait()
            for _ in range(5):
                mine.enqueue_many(batch if n % 3 else batch[::-1])
                for job in mine.claim("q", 10):
                    mine.complete(job)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(ask, range(6)))
    assert client.queues.depth("q").running == 0
    assert 0 < client.queues.depth("q").ready <= 30


def test_an_end_never_waits_for_a_producer_and_its_key_is_free_all_the_same(
    connect: Connect, client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    """The producer takes over the key of a running job and rolls back; the job ended in the meantime."""
    enqueue(client)
    [job] = client.claim("q")
    producer = connect()
    producer.execute("begin")
    producer.execute("select * from dibs.enqueue('q', 'k', dedup_key => 'same', on_duplicate => 'replace')")
    db.execute("set lock_timeout = '2s'")
    assert db.execute("select dibs.complete(%s, %s)", (job.id, job.token)).fetchone() == ("ok",)
    producer.execute("rollback")
    assert keys(db) == 1, "the key was locked, so it stayed behind"
    assert enqueue(client).is_new


def test_a_window_ends_with_its_job_although_a_producer_had_locked_the_key(
    connect: Connect, client: dibs.Client, clock: Clock, db: psycopg.Connection[Any]
) -> None:
    """The job fails while a producer takes over its key. The producer rolls back, so the row stays behind."""
    clock.freeze()
    enqueue(client, dedup_for=3600)
    [job] = client.claim("q")
    producer = connect()
    producer.execute("begin")
    producer.execute("select * from dibs.enqueue('q', 'k', dedup_key => 'same', on_duplicate => 'replace')")
    client.fail(job, final=True)
    producer.execute("rollback")
    assert keys(db) == 1, "the key was locked, so it stayed behind"
    assert client.cancel_key("q", "same") is None
    assert enqueue(client).is_new


def test_a_claim_never_waits_for_a_key(connect: Connect, client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    made = enqueue(client, dedup_scope="waiting")
    one = connect()
    one.execute("begin")
    one.execute("select from dibs.fingerprint for update")
    db.execute("set lock_timeout = '2s'")
    assert db.execute("select id from dibs.claim('{q}')").fetchall() == [(made.id,)]


def test_two_that_take_over_one_key_wait_for_each_other(connect: Connect, client: dibs.Client, later: Later) -> None:
    enqueue(client, dedup_scope="waiting")
    client.claim("q")
    one, other = connect(), connect()
    ask = "select job_id, outcome from dibs.enqueue('q', 'k', dedup_key => 'same', dedup_scope => 'waiting')"
    one.execute("begin")
    row = one.execute(ask).fetchone()
    assert row
    assert row[1] == "enqueued"
    waiting = later.start(other, ask)
    assert not waiting.done()
    one.execute("commit")
    assert waiting.result() == [(row[0], "duplicate")]


def test_an_older_snapshot_takes_no_key_over_in_silence(connect: Connect, client: dibs.Client) -> None:
    enqueue(client, dedup_scope="waiting")
    client.claim("q")
    old = connect()
    old.execute("begin isolation level repeatable read")
    old.execute("select count(*) from dibs.fingerprint")
    held = enqueue(client, dedup_scope="waiting")
    with pytest.raises(psycopg.errors.SerializationFailure):
        old.execute("select * from dibs.enqueue('q', 'k', dedup_key => 'same')")
    old.execute("rollback")
    assert enqueue(client) == dibs.types.Enqueued(held.id, dibs.Answer.DUPLICATE)


# Tasks


def test_a_task_says_how_its_jobs_are_told_apart(dsn: str) -> None:
    app = dibs.App(dsn, queue="q")

    @app.task(dedup=True, dedup_scope="waiting", on_duplicate="replace")
    def index(page: int, lang: str = "en") -> None: ...

    first = index.using(delay=5).enqueue(1)
    again = index.using(delay=5).enqueue(page=1)
    assert (first.outcome, again.outcome, again.is_new) == ("enqueued", "replaced", True)
    assert index.using(on_duplicate="keep").enqueue(1).outcome == "duplicate"
    assert index.enqueue(2).outcome == "enqueued"
    app.close()
