"""Tasks and the worker: real jobs, real threads, real signals."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

import dibs
from dibs.cluster import Holding, Member
from dibs.db import calls
from dibs.runtime import wait_at_most
from dibs.worker import Worker, WorkerSettings
from dibs.worker.completer import Completer
from dibs.worker.keeper import Keeper
from dibs.worker.producer import Producer
from dibs.worker.pulse import Pulse
from dibs.worker.run_end import RunEnd
from dibs.worker.runners import Runners
from dibs.worker.source import Source
from tests.chaos.pgbouncer import PgBouncer
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import psycopg

    from dibs.job import Claimed
    from dibs.testing import Clock

NOW = dibs.Retry(max_attempts=3, backoff=dibs.constant(0))


@pytest.fixture
def app(dsn: str) -> Iterator[dibs.App]:
    app = dibs.App(dsn, queue="q")
    yield app
    app.close()


async def drain(app: dibs.App, **settings: Any) -> Worker:
    """Run what there is, to its end."""
    worker = Worker(app, WorkerSettings(("q",), **{"drain": True, "upkeep": False, **settings}))
    async with asyncio.timeout(60):
        await worker.run()
    return worker


@dataclasses.dataclass
class Order:
    id: UUID
    at: datetime
    tags: list[str]


async def test_functions_run_as_jobs_and_their_results_are_kept(app: dibs.App) -> None:
    @app.task
    async def double(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    @app.task
    def describe(order: Order, times: int = 1) -> dict[str, Any]:
        return {"thread": threading.current_thread().name, "tags": order.tags * times, "year": order.at.year}

    order = Order(UUID(int=7), datetime(2026, 1, 2, tzinfo=UTC), ["a", "b"])
    doubled, described = double.enqueue(21), describe.enqueue(order, times=2)
    assert await double(4) == 8
    worker = await drain(app)
    assert worker.ended == 2
    assert doubled.result() == 42
    assert described.wait(5)["tags"] == ["a", "b", "a", "b"]
    assert described.wait(5)["thread"].startswith("dibs-handler")


async def test_a_handle_from_an_id_knows_what_the_task_returns(app: dibs.App) -> None:
    @app.task
    async def copy(order: Order) -> Order:
        return order

    order = Order(UUID(int=7), datetime(2026, 1, 2, tzinfo=UTC), ["a"])
    id = copy.enqueue(order).id
    await drain(app)
    assert copy.job(str(id)).wait(5) == order
    assert await copy.ajob(id).result() == order
    assert app.job(id).wait(5) == {"id": str(UUID(int=7)), "at": "2026-01-02T00:00:00Z", "tags": ["a"]}
    assert (await app.ajob(str(id)).status()).state is dibs.State.SUCCEEDED
    assert app.client.job(id).status().state is dibs.State.SUCCEEDED
    for malformed in ("4711", "", None, 5):
        with pytest.raises(dibs.InvalidArgument, match="is no job's id"):
            app.job(malformed)  # type: ignore[arg-type]


async def test_a_result_that_is_not_what_the_task_says_it_returns(app: dibs.App) -> None:
    @app.task
    async def lie() -> int:
        return "three"  # type: ignore[return-value]

    job = lie.enqueue()
    await drain(app)
    with pytest.raises(dibs.errors.UnexpectedResult, match="is no int"):
        job.result()
    assert app.job(job.id).result() == "three"


def test_arguments_are_checked_when_enqueued(app: dibs.App) -> None:
    @app.task
    def welcome(user_id: int, lang: str = "en") -> None: ...

    for args, kwargs, words in (
        ((), {}, "missing a required argument: 'user_id'"),
        (("x",), {}, r"Expected `int`, got `str` - at `\$.user_id`"),
        ((1,), {"language": "de"}, "unexpected keyword argument 'language'"),
        ((object(),), {}, "cannot be kept as JSON"),
    ):
        with pytest.raises(dibs.InvalidArgument, match=words):
            welcome.enqueue(*args, **kwargs)  # type: ignore[arg-type]
    with pytest.raises(dibs.InvalidArgument, match=r"no \*args"):

        @app.task
        def many(*args: int) -> None: ...

    with pytest.raises(dibs.InvalidArgument, match="there is a task"):
        app.task(name=welcome.name)(welcome.function)
    assert app.client.queues.depth("q").waiting == 0


def test_options_are_checked_when_declared(app: dibs.App) -> None:
    with pytest.raises(dibs.InvalidArgument, match="no option 'retires'") as raised:
        app.task(retires=3)(len)  # type: ignore[call-overload]
    assert raised.value.hint == "did you mean 'retry'?"
    with pytest.raises(dibs.InvalidArgument, match="no option 'prioritty'"):

        @app.batch(prioritty=3)  # type: ignore[call-arg]
        def index(items: list[int]) -> None: ...

    with pytest.raises(dibs.InvalidArgument, match="no option 'colour'") as raised:
        app.task(colour="red")(len)  # type: ignore[call-overload]
    assert "dedup_key" in str(raised.value.hint)


async def test_a_payload_that_no_longer_fits_fails_for_good(app: dibs.App) -> None:
    @app.task(name="resize")
    def resize(width: int) -> None: ...

    made = app.client.enqueue("q", "resize", {"width": "wide"})
    await drain(app)
    assert app.client.status(made.id).state is dibs.State.FAILED
    assert "$.width" in app.client.why(made.id)


async def test_a_long_error_keeps_its_trace(app: dibs.App, db: psycopg.Connection[Any]) -> None:
    @app.task(retry=dibs.Retry(max_attempts=1))
    async def chatty() -> None:
        raise ValueError("x" * 5_000_000)

    chatty.enqueue()
    await drain(app)
    [(error,)] = db.execute("select error from dibs.attempt").fetchall()
    assert len(error) < 40_000
    assert "in chatty" in error


async def test_an_unknown_kind_is_left_for_others(app: dibs.App) -> None:
    made = app.client.enqueue("q", "not-here")
    await drain(app)
    assert app.client.status(made.id).state is dibs.State.BLOCKED
    shown = app.client.show(made.id)
    assert shown
    assert (shown["charged"], shown["attempts"]) == (0, [])


class Throttled(Exception):
    pass


async def test_errors_retry_by_their_rules(app: dibs.App) -> None:
    seen: list[str] = []

    @app.task(retry=dibs.Retry(3, dibs.constant(0), never=(ValueError,), after={Throttled: 3600}))
    async def fails(how: str) -> None:
        seen.append(how)
        raise {
            "retry": RuntimeError("again"), "value": ValueError("bad"), "final": dibs.GiveUp("no"),
            "throttled": Throttled("slow"), "later": dibs.RetryAfter(1800), "snooze": dibs.Snooze(900),
        }[how]  # fmt: skip

    jobs = {how: fails.enqueue(how) for how in ("retry", "value", "final", "throttled", "later", "snooze")}
    await drain(app)
    assert seen.count("retry") == 3
    assert len(seen) == 8
    states = {how: job.status().state for how, job in jobs.items()}
    assert states == {
        "retry": "exhausted", "value": "failed", "final": "failed",
        "throttled": "scheduled", "later": "scheduled", "snooze": "scheduled",
    }  # fmt: skip
    due = {j.id: (j.due_at - datetime.now(UTC)).total_seconds() for j in app.client.find_jobs({"queue": "q"}).jobs}
    assert [round(due[jobs[how].id], -2) for how in ("throttled", "later", "snooze")] == [3600, 1800, 900]
    shown = app.client.show(jobs["retry"].id)
    assert shown
    assert shown["attempts"][0]["error"].startswith("RuntimeError: again\n")
    with pytest.raises(dibs.JobEnded, match="exhausted"):
        jobs["retry"].wait(1)


async def test_a_handler_past_its_timeout_is_stopped(app: dibs.App) -> None:
    @app.task(timeout=0.1, retry=dibs.Retry(1))
    async def hangs() -> None:
        await asyncio.Event().wait()

    job = hangs.enqueue()
    await drain(app)
    assert job.status().state is dibs.State.EXHAUSTED
    assert "took longer than 0.1 s" in app.client.why(job.id)


async def test_follow_ups_come_with_the_completion(app: dibs.App) -> None:
    @app.task
    async def second(n: int) -> int:
        return n

    @app.task
    async def first(fail: bool) -> None:
        dibs.context().enqueue(second.using(priority=9).call(dibs.context().attempt))
        if fail:
            raise dibs.GiveUp("nothing follows")

    first.enqueue(False)
    first.enqueue(True)
    worker = await drain(app)
    assert worker.ended == 3
    with pytest.raises(dibs.DibsError, match="no attempt here"):
        dibs.context()


async def test_a_cancel_reaches_a_running_handler_within_a_second(app: dibs.App) -> None:
    """By the bell: the lease would be renewed after ten seconds. The rest is for a machine that is busy."""
    began, told = asyncio.Event(), asyncio.Event()

    @app.task
    async def waits() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.set()
            raise

    ended: list[dibs.events.RunEnded] = []
    app.events.on(dibs.events.RunEnded, ended.append)
    job = waits.enqueue()
    running = asyncio.create_task(drain(app))
    await began.wait()
    assert await asyncio.to_thread(job.cancel) == "requested"
    async with asyncio.timeout(5):
        await told.wait()
    await running
    assert job.status().state is dibs.State.CANCELLED
    assert [run.outcome for run in ended] == ["cancelled"]
    assert ended[0].ran > 0


async def test_a_cancel_that_rings_before_its_job_has_arrived_is_not_forgotten(
    app: dibs.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is committed, and its answer is still on its way."""
    rung = asyncio.Event()
    claim, hear = Source.claim, Keeper.hear

    @app.task
    async def waits() -> None:
        await asyncio.Event().wait()

    job = waits.enqueue()

    async def claim_slowly(self: Source, *asked: Any) -> list[Claimed] | None:
        jobs = await claim(self, *asked)
        if jobs:
            assert await asyncio.to_thread(job.cancel) == "requested"
            await rung.wait()
        return jobs

    def hear_and_tell(self: Keeper, marks: Sequence[str]) -> None:
        hear(self, marks)
        rung.set()

    monkeypatch.setattr(Source, "claim", claim_slowly)
    monkeypatch.setattr(Keeper, "hear", hear_and_tell)
    async with asyncio.timeout(8):  # A lease is renewed after ten seconds.
        await drain(app)
    assert job.status().state is dibs.State.CANCELLED


async def test_without_the_bell_a_cancel_is_found_when_the_lease_is_renewed(app: dibs.App, dsn: str) -> None:
    app.client.queues.set("q", lease=3)
    began = asyncio.Event()

    @app.task
    async def waits() -> None:
        began.set()
        await asyncio.Event().wait()

    job = waits.enqueue()
    with PgBouncer(dsn, pool_size=2) as pooled:
        app.dsn = pooled.dsn
        running = asyncio.create_task(drain(app))
        await began.wait()
        assert await asyncio.to_thread(job.cancel) == "requested"
        await running
    assert job.status().state is dibs.State.CANCELLED


async def test_a_late_failure_does_not_revive_a_cancelled_job(app: dibs.App) -> None:
    """Terminal is terminal, whatever the handler of a cancelled job does next."""
    went: dict[str, asyncio.Event] = {how: asyncio.Event() for how in ("raises", "asks for more", "snoozes")}
    errors = {"raises": RuntimeError("late"), "asks for more": dibs.RetryAfter(0), "snoozes": dibs.Snooze(0)}
    go, ran = asyncio.Event(), []

    @app.task(retry=dibs.Retry(max_attempts=10, backoff=dibs.constant(0)))
    async def fails(how: str) -> None:
        ran.append(how)
        went[how].set()
        await go.wait()
        raise errors[how]

    jobs = [fails.enqueue(how) for how in errors]
    running = asyncio.create_task(drain(app))
    for event in went.values():
        await event.wait()
    assert [await asyncio.to_thread(job.cancel) for job in jobs] == ["requested"] * 3
    go.set()
    await running
    assert [job.status().state for job in jobs] == ["cancelled"] * 3
    await drain(app)
    assert sorted(ran) == sorted(errors)


async def test_a_failure_after_the_lease_was_lost_changes_nothing(app: dibs.App, clock: Clock) -> None:
    """The job was taken back and cancelled meanwhile; what its former holder says is refused."""
    began, go = asyncio.Event(), asyncio.Event()
    lost: list[dibs.events.RunLost] = []
    app.events.on(dibs.events.RunLost, lost.append)

    @app.task(retry=dibs.Retry(max_attempts=10, backoff=dibs.constant(0)))
    async def fails() -> None:
        began.set()
        await go.wait()
        raise RuntimeError("late")

    job = fails.enqueue()
    running = asyncio.create_task(drain(app, slots=1))  # it has no room to claim it again
    await began.wait()
    clock.move(31)
    await asyncio.to_thread(app.client.upkeep.rescue)
    assert await asyncio.to_thread(job.cancel) == "cancelled"
    go.set()
    await running
    assert job.status().state is dibs.State.CANCELLED
    shown = app.client.show(job.id) or {}
    assert [a["outcome"] for a in shown["attempts"]] == ["lost"]
    assert len(lost) == 1


async def test_what_a_row_says_is_looked_up_and_never_imported(app: dibs.App) -> None:
    """A kind is a key of the registry, a payload is JSON, an error is text."""
    seen: list[Any] = []

    @app.task(name="takes")
    async def takes(anything: Any) -> None:
        seen.append(anything)
        raise ValueError("!!python/object/apply:os.system ['true']")

    lures = [
        {"__class__": "os.system", "py/object": "subprocess.Popen", "args": ["true"]},
        {"__reduce__": ["eval", "1"]},
    ]
    made = [app.client.enqueue("q", "takes", {"anything": lure}, max_attempts=1) for lure in lures]
    strange = [
        app.client.enqueue("q", kind) for kind in ("this.d", "os.system", "builtins:eval", "dibs.errors.LeaseLost")
    ]
    assert "this" not in sys.modules
    await drain(app)
    assert "this" not in sys.modules
    assert seen == lures
    assert [s.state for s in app.client.status_many([m.id for m in strange])] == ["blocked"] * 4
    shown = app.client.show(made[0].id) or {}
    assert shown["attempts"][0]["error"].startswith("ValueError: !!python/object/apply")
    with pytest.raises(dibs.JobEnded):
        dibs.Job(app.client, made[0].id).wait(5)


async def test_a_job_cancelled_before_it_began_is_never_run(app: dibs.App, monkeypatch: pytest.MonkeyPatch) -> None:
    began, finish, ran = asyncio.Event(), asyncio.Event(), []

    @app.task
    async def waits(n: int) -> None:
        ran.append(n)
        began.set()
        await finish.wait()

    jobs = [waits.enqueue(n) for n in range(2)]
    told: list[bytes] = []
    stop = Runners._stop

    def stop_and_tell(self: Runners, key: bytes, why: Any) -> None:
        stop(self, key, why)
        told.append(key)

    monkeypatch.setattr(Runners, "_stop", stop_and_tell)
    # Taken ahead, as if the jobs before it had been short.
    worker = Worker(app, WorkerSettings(("q",), slots=1, drain=True, upkeep=False))
    monkeypatch.setattr(Producer, "_wanted", lambda _: 10)
    running = asyncio.create_task(worker.run())
    await began.wait()
    await asyncio.to_thread(wait_until, lambda: jobs[1].status().state is dibs.State.RUNNING, what="it was taken ahead")
    assert await asyncio.to_thread(jobs[1].cancel) == "requested"
    await asyncio.to_thread(wait_until, lambda: told, what="the worker was told")
    finish.set()
    async with asyncio.timeout(30):
        await running
    assert (ran, jobs[1].status().state) == ([0], "cancelled")


async def test_long_jobs_after_a_pause_are_not_hoarded(app: dibs.App) -> None:
    """However fast it was before: what comes after a pause may be of another sort."""
    finish = asyncio.Event()

    @app.task
    async def quick() -> None: ...

    @app.task
    async def slow() -> None:
        await finish.wait()

    quick.enqueue_many(quick.call() for _ in range(2000))
    worker = Worker(app, WorkerSettings(("q",), slots=5, upkeep=False, poll=0.1))
    running = asyncio.create_task(worker.run())
    await asyncio.to_thread(wait_until, lambda: worker.ended == 2000, what="the quick ones are done")
    await asyncio.to_thread(wait_until, lambda: worker._in_flight.pace.rate == 0, what="it has waited for more")
    slow.enqueue_many(slow.call() for _ in range(100))
    await asyncio.to_thread(wait_until, lambda: app.client.queues.depth("q").running > 0, what="it has taken some")
    assert app.client.queues.depth("q").running == 5
    worker.stop()
    finish.set()
    await running


async def test_suspects_run_alone_and_the_rest_is_not_given_back(dsn: str, db: psycopg.Connection[Any]) -> None:
    """Jobs that were lost twice may be what kills workers. Two workers meet many of them among others."""
    running: dict[dibs.App, set[int]] = {}
    beside: list[int] = []

    def make() -> dibs.App:
        app = dibs.App(dsn, queue="q")
        mine = running.setdefault(app, set())

        @app.task(name="runs")
        async def runs(n: int) -> None:
            mine.add(n)
            if len(mine) > 1 and dibs.context().job.losses >= 2:
                beside.append(n)
            await asyncio.sleep(0.005)
            if len(mine) > 1 and dibs.context().job.losses >= 2:
                beside.append(n)
            mine.remove(n)

        return app

    apps = [make(), make()]
    made = apps[0].client.enqueue_many(dibs.NewJob(queue="q", kind="runs", payload={"n": n}) for n in range(200))
    db.execute("update dibs.ready set losses = 2 where id = any (%s)", ([job.id for job in made[::2]],))
    await asyncio.gather(*(drain(app, slots=20) for app in apps))
    assert {s.state for s in apps[0].client.status_many([job.id for job in made])} == {dibs.State.SUCCEEDED}
    assert beside == []
    row = db.execute("select count(*) from dibs.attempts where outcome = 'released'").fetchone()
    assert row
    assert row[0] < 100
    for app in apps:
        app.close()


async def test_a_worker_that_had_to_register_again_claims_under_its_new_number(
    app: dibs.App, db: psycopg.Connection[Any]
) -> None:
    """It holds an exclusive queue under that number, and a claim under the old one would be refused forever."""
    app.client.queues.set("q", exclusive=True, shard_lease=1)

    @app.task
    async def quick() -> None: ...

    worker = Worker(app, WorkerSettings(("q",), upkeep=False, poll=0.1))
    running = asyncio.create_task(worker.run())
    await asyncio.to_thread(quick.enqueue().wait, 30)
    [before] = app.client.queues.shards()
    db.execute("delete from dibs.worker")

    def holds_again() -> bool:
        [now] = app.client.queues.shards()
        return now.claimable and now.worker not in {None, before.worker}

    await asyncio.to_thread(wait_until, holds_again, what="it registered again, and holds the queue")
    await asyncio.to_thread(quick.enqueue().wait, 30)
    worker.stop()
    await running
    assert worker.ended == 2


async def test_a_handler_that_blocks_the_loop_keeps_its_lease(app: dibs.App) -> None:
    """A handler that blocks the event loop starves its own heartbeat; the keeper has its own thread."""
    app.client.queues.set("q", lease=0.5)
    runs: list[int] = []

    @app.task
    async def blocks() -> None:
        runs.append(1)
        threading.Event().wait(1.5)

    job = blocks.enqueue()
    rescued: list[Any] = []
    stop = threading.Event()

    def rescue() -> None:
        with dibs.Client(app.dsn) as other:
            while not stop.wait(0.05):
                rescued.extend(other.upkeep.rescue())

    thread = threading.Thread(target=rescue)
    thread.start()
    await drain(app)
    stop.set()
    thread.join()
    assert (runs, rescued) == ([1], [])
    assert job.status().state is dibs.State.SUCCEEDED


async def test_a_stop_gives_back_what_has_not_begun_and_what_does_not_end(app: dibs.App) -> None:
    """A shutdown loses no result and leaves no lease behind."""
    began, finish = asyncio.Event(), asyncio.Event()

    @app.task
    async def ends() -> str:
        began.set()
        await finish.wait()
        return "done"

    @app.task
    async def never_ends() -> None:
        await asyncio.Event().wait()

    ending, endless = ends.using(priority=9).enqueue(), never_ends.using(priority=8).enqueue()
    waiting = [ends.enqueue() for _ in range(10)]
    worker = Worker(app, WorkerSettings(("q",), slots=2, grace=1.0, upkeep=False))
    running = asyncio.create_task(worker.run())
    await began.wait()
    worker.stop()
    finish.set()
    async with asyncio.timeout(30):
        await running
    assert (ending.status().state, ending.result(), endless.status().state) == ("succeeded", "done", "ready")
    assert {job.status().state for job in waiting} == {dibs.State.READY}
    shown = [app.client.show(job.id) or {} for job in [endless, *waiting]]
    assert {s["charged"] for s in shown} == {0}
    assert app.client.queues.depth("q").running == 0


async def test_aenqueue_and_the_callers_transaction(app: dibs.App, db: Any) -> None:
    @app.task
    async def noop() -> None: ...

    assert (await noop.aenqueue()).is_new
    with db.transaction(force_rollback=True):
        noop.using(conn=db).enqueue()
    assert app.client.queues.depth("q").ready == 1
    await app.aclose()


APP = """
import asyncio, dibs, pathlib, sys
app = dibs.App(queue="q")
@app.task
async def slow(name: str, seconds: float) -> str:
    pathlib.Path(name).touch()
    await asyncio.sleep(seconds)
    return "slept"
"""


def start(folder: Path, dsn: str, *options: str) -> subprocess.Popen[str]:
    (folder / "shop.py").write_text(APP)
    command = [sys.executable, "-m", "dibs", "worker", "shop:app", "--dsn", dsn, *options]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_sigterm_lets_running_jobs_finish(tmp_path: Path, dsn: str, client: dibs.Client) -> None:
    made = client.enqueue("q", "shop.slow", {"name": "began", "seconds": 0.5})
    with start(tmp_path, dsn) as worker:
        wait_until((tmp_path / "began").exists, what="the job runs")
        worker.send_signal(signal.SIGTERM)
        _, errors = worker.communicate(timeout=30)
    assert worker.returncode == 0, errors
    assert client.status(made.id).state is dibs.State.SUCCEEDED
    assert client.queues.depth("q").running == 0


def test_a_second_sigterm_gives_everything_back_now(tmp_path: Path, dsn: str, client: dibs.Client) -> None:
    made = client.enqueue("q", "shop.slow", {"name": "began", "seconds": 600})
    with start(tmp_path, dsn) as worker:
        wait_until((tmp_path / "began").exists, what="the job runs")
        began = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        assert worker.stderr
        assert any("stopping: 1 running job " in line for line in iter(worker.stderr.readline, ""))
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=30)
    assert worker.returncode == 0
    assert time.monotonic() - began < 25
    assert client.status(made.id).state is dibs.State.READY


def test_what_a_killed_worker_held_is_run_by_another(
    tmp_path: Path, dsn: str, client: dibs.Client, clock: Clock
) -> None:
    made = client.enqueue("q", "shop.slow", {"name": "began", "seconds": 0.3})
    client.queues.set("q", max_attempts=3)
    with start(tmp_path, dsn) as worker:
        wait_until((tmp_path / "began").exists, what="the job runs")
        worker.send_signal(signal.SIGKILL)
    clock.move(31)
    with start(tmp_path, dsn) as other:
        wait_until(lambda: client.status(made.id).state is dibs.State.SUCCEEDED, what="it ran again")
        other.send_signal(signal.SIGTERM)
        other.communicate(timeout=30)
    shown = client.show(made.id)
    assert shown
    assert [a["outcome"] for a in shown["attempts"]] == ["lost", "succeeded"]


async def test_a_job_that_was_taken_away_and_comes_back_to_the_same_worker(app: dibs.App) -> None:
    """Two runs of one job are in hand at once; each end settles its own."""
    both = threading.Barrier(2)

    @app.task
    def twice() -> int:
        here = dibs.context()
        if here.job.run == 1:
            app.client.fail(here.job, "taken away", delay=0)
        both.wait(20)
        return here.job.run

    job = twice.enqueue()
    worker = await drain(app)
    assert (job.result(), worker.ended) == (2, 2)


async def test_jobs_that_came_too_late_are_given_back(app: dibs.App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to a claim was so long in coming that the lease may be over: no loss is charged for it."""

    @app.task
    async def ran() -> int:
        return dibs.context().job.losses

    job = ran.enqueue()
    take = Runners.take

    def take_late(self: Runners, jobs: list[Claimed], since: float) -> list[Claimed]:
        return take(self, jobs, since - (3600 if jobs and jobs[0].run == 1 else 0))

    monkeypatch.setattr(Runners, "take", take_late)
    worker = await drain(app)
    assert (job.result(), worker.ended) == (0, 2)
    assert [a["outcome"] for a in app.client.show(job.id)["attempts"]] == ["released", "succeeded"]  # type: ignore[index]


async def test_a_worker_that_drains_takes_a_failed_call_for_no_end(
    app: dibs.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a claim nor an unpark that fails says that the queue is empty."""

    @app.task
    async def ran() -> str:
        return "done"

    failed: list[str] = []

    def fail_first(name: str, error: dibs.DibsError, times: int) -> None:
        make_call = getattr(calls.jobs, name)

        def make_or_fail(*args: Any) -> Any:
            if failed.count(name) < times:
                failed.append(name)
                raise error
            return make_call(*args)

        monkeypatch.setattr(calls.jobs, name, make_or_fail)

    fail_first("claim", dibs.ConnectionLost("gone"), 2)
    fail_first("unpark", dibs.ConnectionLost("gone"), 1)
    job = ran.enqueue()
    await drain(app, poll=0.1)
    assert job.result() == "done"
    assert failed == ["claim", "claim", "unpark"]


async def test_a_worker_survives_that_its_shards_cannot_be_taken_again(
    app: dibs.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    async def ran() -> str:
        return "done"

    failed: list[str] = []
    hold, claim = Holding.hold, calls.jobs.claim

    async def fail_to_hold(self: Holding) -> float:
        if failed == ["claim"]:
            failed.append("hold")
            raise dibs.ConnectionLost("gone")
        return await hold(self)

    def fail_to_claim(*args: Any) -> Any:
        if not failed:
            failed.append("claim")
            raise dibs.errors.ShardNotHeld("another has it")
        return claim(*args)

    monkeypatch.setattr(Holding, "hold", fail_to_hold)
    monkeypatch.setattr(calls.jobs, "claim", fail_to_claim)
    job = ran.enqueue()
    await drain(app, poll=0.1)
    assert (job.result(), failed) == ("done", ["claim", "hold"])


async def test_a_worker_that_breaks_gives_back_what_has_not_begun(
    app: dibs.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect of ours ends the producer: its jobs are not left to their leases, and no loss is charged."""

    @app.task
    async def never_ends() -> None:
        await asyncio.Event().wait()

    claim = Source.claim

    async def claim_once(self: Source, names: Sequence[str], count: int) -> list[Claimed] | None:
        if app.client.queues.depth("q").running:
            raise RuntimeError("a defect")
        return await claim(self, names, count)

    monkeypatch.setattr(Source, "claim", claim_once)
    monkeypatch.setattr(Producer, "_wanted", lambda _: 20)
    made = [never_ends.enqueue() for _ in range(10)]
    with pytest.raises(RuntimeError, match="a defect"):
        await drain(app, slots=1, grace=0.1)
    assert {job.status().state for job in made} == {dibs.State.READY}
    assert {(app.client.show(job.id) or {})["charged"] for job in made} == {0}


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_a_suspect_that_waits_for_solitude_is_given_back_at_a_stop(
    app: dibs.App, db: psycopg.Connection[Any], how: str
) -> None:
    suspects: list[int] = []

    @app.task
    async def runs() -> None:
        if dibs.context().job.losses >= 2:
            suspects.append(1)
        await asyncio.Event().wait()

    other = runs.using(priority=9).enqueue()
    suspect = runs.enqueue()
    db.execute("update dibs.ready set losses = 2 where id = %s", (suspect.id,))
    worker = Worker(app, WorkerSettings(("q",), slots=5, grace=0.5, upkeep=False))
    running = asyncio.create_task(worker.run())
    await asyncio.to_thread(
        wait_until, lambda: app.client.queues.depth("q").running == 2, what="both are claimed, and one is set aside"
    )
    worker.stop() if how == "stop" else running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait_for(running, 30)
    assert suspects == []
    assert [job.status().state for job in (other, suspect)] == [dibs.State.READY] * 2


async def test_a_lost_job_of_a_batch_is_renewed_no_more(app: dibs.App, monkeypatch: pytest.MonkeyPatch) -> None:
    app.client.queues.set("q", lease=1.0)
    renewed: list[set[UUID]] = []
    extend_many = calls.jobs.extend_many

    def note(held: Sequence[Claimed], *args: Any) -> Any:
        renewed.append({job.id for job in held})
        return extend_many(held, *args)

    monkeypatch.setattr(calls.jobs, "extend_many", note)

    lost: list[UUID] = []

    @app.batch(max=3, within=5)
    def waits(items: list[int]) -> None:
        taken_away = dibs.context().batch[0]
        lost.append(taken_away.job.id)
        app.client.fail(taken_away.job, "taken away", delay=3600)
        wait_until(lambda: taken_away.stop_reason == "lost", what="the keeper was told that it is lost")
        renewed.clear()
        wait_until(lambda: len(renewed) >= 2, what="the others were renewed twice")

    jobs = [waits.enqueue(n) for n in range(3)]
    await drain(app)
    assert sorted(job.status().state for job in jobs) == ["scheduled", "succeeded", "succeeded"]
    assert {id for ids in renewed for id in ids} == {job.id for job in jobs} - {*lost}


async def test_a_stop_ends_well_though_the_registry_does_not_answer(
    app: dibs.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    troubles: list[dibs.events.Trouble] = []
    app.events.on(dibs.events.Trouble, troubles.append)

    async def refuse(_: Member) -> None:
        raise dibs.errors.NotPermitted("no")

    monkeypatch.setattr(Member, "retire", refuse)
    await drain(app)
    assert [trouble.where for trouble in troubles] == ["leaving the registry"]


async def test_ends_without_an_answer_are_told_as_lost_when_a_worker_closes(app: dibs.App) -> None:
    """Also those of the call that is under way; but a job that its handler has completed has succeeded."""

    class Silent:
        async def run(self, _: object) -> None:
            await asyncio.Event().wait()

    facts: list[Any] = []
    done: list[UUID] = []
    app.events.on(dibs.events.RunLost, facts.append)
    app.events.on(dibs.events.RunEnded, facts.append)
    silent: Any = Silent()
    completer = Completer(silent, app.events, lambda ends: done.extend(end.job.id for end in ends))
    app.client.enqueue_many(dibs.NewJob(queue="q") for _ in range(3))
    sent, completed, waiting = app.client.claim("q", 3)
    completer.add(RunEnd(sent, "complete"))
    completer.add(RunEnd(completed, "none"))
    sending = asyncio.create_task(completer.run())
    await asyncio.sleep(0)
    completer.add(RunEnd(waiting, "fail", error="no"))
    completer.end()
    await wait_at_most(sending, 0.05)
    completer.give_up_unfinished()
    assert {(type(fact).__name__, fact.job.id) for fact in facts} == {
        ("RunEnded", completed.id), ("RunLost", sent.id), ("RunLost", waiting.id),
    }  # fmt: skip
    assert sorted(done) == sorted(job.id for job in (sent, completed, waiting))


async def test_a_worker_whose_completer_breaks_at_the_end_leaves_no_thread(
    app: dibs.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Completer.run

    async def break_at_the_end(self: Completer) -> None:
        await run(self)
        raise RuntimeError("a defect")

    monkeypatch.setattr(Completer, "run", break_at_the_end)
    with pytest.raises(RuntimeError, match="a defect"):
        await drain(app)
    assert not {"dibs-keeper", "dibs-fence"} & {thread.name for thread in threading.enumerate()}


def test_a_keeper_that_was_closed_is_no_trouble(app: dibs.App, dsn: str) -> None:
    keeper = Keeper(dsn, app.events, Pulse(app.events))
    keeper.start(lambda *_: None)
    assert keeper.is_alive
    keeper.close()
    assert keeper.is_alive
    assert not any(thread.is_alive() for thread in keeper._threads)
