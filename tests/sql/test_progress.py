"""Progress of running jobs: stored by the holder, seen by everybody, kept with the run."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest

import dibs
from dibs.progress import progress_json, spoken

if TYPE_CHECKING:
    from dibs.testing import Clock
    from tests.conftest import Connect


def running(client: dibs.Client, queue: str = "q", **options: Any) -> Any:
    client.enqueue(queue, "k", **options)
    [job] = client.claim(queue)
    return job


def test_a_report_is_seen_and_changes_no_lease(client: dibs.Client, db: psycopg.Connection[Any], clock: Clock) -> None:
    job = running(client)
    clock.move(10)
    assert client.progress(job, 3, 10, message="resizing", data={"file": "a.png"}) == "ok"
    told = {"done": 3, "of": 10, "message": "resizing", "data": {"file": "a.png"}}
    assert db.execute("select progress, lease_until from dibs.jobs").fetchone() == (told, job.lease_until)
    status = client.status(job.id)
    assert (status.state, status.run, status.attempts) == (dibs.State.RUNNING, 1, 1)
    assert (status.done, status.of, status.fraction) == (3, 10, 0.3)
    assert (status.message, status.data) == ("resizing", {"file": "a.png"})
    [listed] = client.find_jobs().jobs
    assert listed.progress == told
    client.extend(job)
    assert client.status(job.id).progress == told
    client.extend(job, progress={"message": "almost"})
    assert client.status(job.id).progress == {"message": "almost"}


def test_only_the_holder_reports(client: dibs.Client, connect: Connect) -> None:
    job, other = running(client), running(client, "other")
    client.complete(other)
    answers = client.progress_many([job, other], [progress_json(0.5), progress_json(1)])
    assert [a.answer for a in answers] == ["ok", "lost"]
    with pytest.raises(dibs.LeaseLost):
        client.progress(other, 1)
    client.cancel(job.id)
    assert client.progress(job, 0.6) == "cancel"
    conn = connect()
    with conn.transaction():
        conn.execute("select from dibs.lease for update")
        assert client.progress(job, 0.7) == "busy"


def test_progress_has_one_shape(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    job = running(client)
    wrong = [
        "[]", "3", '{"todo": 1}', '{"done": "3"}', '{"done": -1}', '{"done": 3, "of": 2}', '{"of": 0}',
        '{"message": 3}', '{"data": []}', '{"message": "' + "x" * 1001 + '"}', '{"data": {"x": "' + "x" * 17000 + '"}}',
    ]  # fmt: skip
    for progress, verb in itertools.product(wrong, ("progress(%s, %s, %s)", "extend(%s, %s, null, %s)")):
        with pytest.raises(psycopg.DatabaseError, match="progress cannot be") as raised:
            db.execute(f"select dibs.{verb}", (job.id, job.token, progress))
        assert raised.value.sqlstate == "DI010", progress
        assert client.status(job.id).progress is None, progress


def test_the_last_word_is_kept_with_the_run(client: dibs.Client, db: psycopg.Connection[Any]) -> None:
    client.queues.set("q", backoff=dibs.constant(0))
    job = running(client)
    client.progress(job, 0.5, message="halfway")
    client.fail(job, "tripped")
    waiting = client.status(job.id)
    assert (waiting.state, waiting.message, waiting.reason) == (dibs.State.READY, "halfway", "tripped")
    [job] = client.claim("q")
    assert client.status(job.id).progress is None, "a new run has said nothing yet"
    client.progress(job, 1)
    client.complete(job)
    ended = client.status(job.id)
    assert (ended.state, ended.fraction, ended.has_ended) == (dibs.State.SUCCEEDED, 1, True)
    assert ended.ended_at is not None
    kept = db.execute("select progress from dibs.attempts order by run").fetchall()
    assert kept == [({"done": 0.5, "of": 1, "message": "halfway"},), ({"done": 1, "of": 1},)]
    shown = client.show(job.id)
    assert shown is not None
    assert [a["progress"] for a in shown["attempts"]] == [row[0] for row in kept]


def test_status_in_every_state(client: dibs.Client, clock: Clock) -> None:
    clock.freeze()
    assert client.status(uuid4()).state is dibs.State.UNKNOWN
    made = client.enqueue("q", "k", delay=60)
    assert client.status(made.id).state is dibs.State.SCHEDULED
    clock.move(60)
    assert client.status(made.id).state is dibs.State.READY
    [job] = client.claim("q")
    assert client.status(made.id).claimed_at == job.claimed_at
    client.fail(job, "never\nat all", final=True)
    dead = client.status(made.id)
    assert (dead.state, dead.reason, dead.has_ended) == (dibs.State.FAILED, "never", True)


def test_watch_tells_each_change_until_the_end(dsn: str, client: dibs.Client) -> None:
    job_id = client.enqueue("q", "k").id
    seen: list[dibs.types.Status] = []
    more = threading.Condition()

    def follow() -> None:
        with dibs.Client(dsn) as other:
            for status in other.watch(job_id, poll=0.02):
                with more:
                    seen.append(status)
                    more.notify_all()

    def wait_for(count: int) -> None:
        with more:
            assert more.wait_for(lambda: len(seen) >= count, 20)

    watcher = threading.Thread(target=follow)
    watcher.start()
    wait_for(1)
    [job] = client.claim("q")
    wait_for(2)
    client.progress(job, 1, 2)
    wait_for(3)
    client.complete(job)
    watcher.join(20)
    assert [(s.state.value, s.fraction) for s in seen] == [
        ("ready", None), ("running", None), ("running", 0.5), ("succeeded", 0.5),
    ]  # fmt: skip
    with pytest.raises(dibs.UnknownJob):
        next(iter(client.watch(uuid4())))


async def test_watch_from_async_code(dsn: str) -> None:
    app = dibs.App(dsn)

    @app.task(name="task")
    def task() -> None: ...

    job = await task.aenqueue()
    async with dibs.AsyncClient(dsn) as client:
        states = []
        async for status in job.watch(poll=0.02):
            states.append(status.state.value)
            if status.state is dibs.State.READY:
                [held] = await client.claim("default")
            elif status.state is dibs.State.RUNNING and status.done is None:
                await client.progress(held, 5, None, message="counting")
                await client.progress_many([held], [{"done": 7}])
            elif status.state is dibs.State.RUNNING:
                assert (status.done, status.of, status.fraction) == (7, None, None)
                await client.complete(held)
    await app.aclose()
    assert states == ["ready", "running", "running", "succeeded"]


def test_progress_in_a_few_words() -> None:
    assert spoken(None) is None
    assert spoken({}) is None
    assert spoken({"done": 3}) == "3"
    assert spoken({"done": 3, "of": 10, "message": "x"}) == "3/10 x"
    assert spoken({"done": 0.25, "of": 1}) == "25%"
    assert spoken({"message": "x"}) == "x"
