"""Errors that may pass, while outcomes are sent: a job that succeeded stays so, and no other waits for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import dibs
from dibs import errors
from dibs.db.translate import Report, error_of
from dibs.worker import Worker, WorkerSettings
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from tests.conftest import Connect


@pytest.fixture
def app(dsn: str) -> Iterator[dibs.App]:
    """An app whose statements wait for locks for 50 ms only."""
    app = dibs.App(f"{dsn}&options=-c%20lock_timeout%3D50ms", queue="q")
    yield app
    app.close()


@pytest.fixture
def troubles(app: dibs.App) -> list[str]:
    """Where things failed and are tried again."""
    found: list[str] = []
    app.events.on(dibs.events.Trouble, lambda trouble: found.append(trouble.where))
    return found


def drain(app: dibs.App) -> asyncio.Task[None]:
    worker = Worker(app, WorkerSettings(("q",), drain=True, upkeep=False, poll=0.05))
    return asyncio.create_task(asyncio.wait_for(worker.run(), 60))


@pytest.mark.parametrize("ending", ["complete", "fail", "snooze"])
async def test_an_error_that_passes_fails_no_job(
    app: dibs.App, db: psycopg.Connection[Any], troubles: list[str], ending: str
) -> None:
    """A lock_timeout while the attempt is written: the outcome is kept, and sent when the lock is gone."""
    raised = {"fail": RuntimeError("by itself"), "snooze": dibs.Snooze(3600)}
    go = asyncio.Event()

    @app.task(retry=dibs.Retry(max_attempts=1))
    async def ends() -> str:
        await go.wait()
        if ending in raised:
            raise raised[ending]
        return "done"

    jobs = [ends.enqueue() for _ in range(3)]
    running = drain(app)
    await asyncio.to_thread(wait_until, lambda: app.client.queues.depth("q").running == 3, what="they run")
    with db.transaction():
        db.execute("lock table dibs.attempt in share mode")
        go.set()
        where = f"sending outcomes ({ending})"
        await asyncio.to_thread(wait_until, lambda: troubles.count(where) > 3, what="it was refused some times")
    await running
    expected = {"complete": "succeeded", "fail": "exhausted", "snooze": "scheduled"}[ending]
    assert [job.status().state for job in jobs] == [expected] * 3
    if ending == "complete":
        assert jobs[0].result() == "done"
    if ending == "fail":
        assert "RuntimeError: by itself" in app.client.why(jobs[0].id)


async def test_no_other_outcome_waits_for_one_that_is_locked(
    app: dibs.App, connect: Connect, troubles: list[str]
) -> None:
    """Somebody's transaction holds one lease: the ends of all others get through."""
    go = asyncio.Event()

    @app.task
    async def ends() -> None:
        await go.wait()

    jobs = [ends.enqueue() for _ in range(20)]
    running = drain(app)
    await asyncio.to_thread(wait_until, lambda: app.client.queues.depth("q").running == 20, what="they run")
    holder = connect()
    with holder.transaction():
        holder.execute("select from dibs.lease where id = %s for update", (jobs[7].id,))
        go.set()
        await asyncio.to_thread(wait_until, lambda: app.client.queues.depth("q").running == 1, what="the others ended")
        assert "sending outcomes (complete)" in troubles
    await running
    assert {job.status().state for job in jobs} == {dibs.State.SUCCEEDED}


async def test_an_outcome_is_kept_no_longer_than_its_lease(
    app: dibs.App, db: psycopg.Connection[Any], troubles: list[str]
) -> None:
    """Then the lease is lost, and nothing was failed for good."""
    app.client.queues.set("q", lease=0.5)
    lost: list[dibs.events.RunLost] = []
    app.events.on(dibs.events.RunLost, lost.append)

    @app.task
    async def ends() -> None: ...

    job = ends.enqueue()
    with db.transaction():
        db.execute("lock table dibs.attempt in share mode")
        running = drain(app)
        await asyncio.to_thread(wait_until, lambda: lost, what="its lease is over")
        await running
        assert job.status().state is dibs.State.RUNNING
    await asyncio.to_thread(app.client.upkeep.rescue)
    assert job.status().state is dibs.State.READY
    assert "sending outcomes (fail)" not in troubles


async def test_a_result_that_is_refused_fails_its_job_only(app: dibs.App) -> None:
    @app.task
    async def follows(queue: str) -> None:
        dibs.context().enqueue(dibs.NewJob(queue=queue, kind="next", payload={"n": 1}))

    jobs = [follows.enqueue(queue) for queue in ("elsewhere", "not a name", "elsewhere")]
    await drain(app)
    assert [job.status().state for job in jobs] == ["succeeded", "failed", "succeeded"]
    assert "the completion was refused" in app.client.why(jobs[1].id)


def test_every_error_is_either_of_the_data_or_may_pass() -> None:
    def told(state: str | None) -> dibs.DibsError:
        return error_of(Report(state, "words", None, None, None))

    passing = (
        None, "08006", "25006", "40001", "40P01", "53100", "53200", "53300", "55P03", "57014", "57P01", "58030",
        "XX000", "42501", "42883", "DI020", "DI041",
    )  # fmt: skip
    data = ("22001", "22P02", "23514", "23502", "54000", "54001", "DI010", "DI012", "DI013")
    assert [errors.blames_data(told(state)) for state in passing] == [False] * len(passing)
    assert [errors.blames_data(told(state)) for state in data] == [True] * len(data)
    assert not errors.blames_data(OSError())
    assert errors.blames_data(UnicodeEncodeError("utf-8", "x", 0, 1, "no"))
