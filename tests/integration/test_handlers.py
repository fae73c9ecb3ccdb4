"""Where handlers run and what they may do: threads, processes, batches, middleware, transactions, repeats."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.rows import dict_row

import dibs
from dibs.worker import Share, Worker, WorkerSettings
from dibs.worker.processes import Child
from tests.integration import shop
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from uuid import UUID

    import psycopg

    from dibs.job import Enqueued, NewJob
    from dibs.worker.child import Request
    from dibs.worker.run_end import RunEnd

NOW = dibs.Retry(max_attempts=3, backoff=dibs.constant(0))


@pytest.fixture
def app(dsn: str) -> Iterator[dibs.App]:
    app = dibs.App(dsn, queue="q")
    yield app
    app.close()


@pytest.fixture
def shop_app(dsn: str) -> Iterator[dibs.App]:
    shop.app.dsn = dsn
    shop.app.__dict__.pop("client", None)
    yield shop.app
    shop.app.close()


async def drain(app: dibs.App, **settings: Any) -> Worker:
    worker = Worker(app, WorkerSettings(**{"queues": ["q"], "drain": True, "upkeep": False, **settings}))
    async with asyncio.timeout(60):
        await worker.run()
    return worker


# Processes


async def test_a_process_of_its_own(shop_app: dibs.App) -> None:
    jobs = [shop.where.enqueue(n) for n in range(4)]
    others = shop.where_async.enqueue()
    await drain(shop_app, pool=2)
    results = [job.wait(5) for job in jobs]
    assert [r["n"] for r in results] == [0, 1, 2, 3]
    assert {r["marked"] for r in results} == {1}  # its middleware ran there, too
    assert os.getpid() not in {r["pid"] for r in results}
    assert len({r["pid"] for r in results} | {others.wait(5)}) <= 2
    assert shop_app.client.queues.depth("q").waiting == 0  # the follow-ups came with the completions and ran


async def test_a_process_past_its_timeout_is_killed(shop_app: dibs.App) -> None:
    job = shop.spins.enqueue()
    began = time.monotonic()
    await drain(shop_app, pool=1)
    assert time.monotonic() - began < 20
    assert job.status().state is dibs.State.EXHAUSTED
    assert "took longer than 0.5 s" in shop_app.client.why(job.id)


async def test_a_process_that_dies_fails_its_job_and_no_other(shop_app: dibs.App) -> None:
    bad, good = shop.dies.enqueue(), [shop.where.enqueue(n) for n in range(3)]
    await drain(shop_app, pool=2)
    assert bad.status().state is dibs.State.EXHAUSTED
    assert "signal SIGKILL" in shop_app.client.why(bad.id)
    assert [job.status().state for job in good] == ["succeeded"] * 3


async def test_a_process_that_died_while_it_was_idle_fails_no_job(shop_app: dibs.App) -> None:
    """The first attempt of the second job runs in a new process."""
    first, second = (shop.where.enqueue(n) for n in (1, 2))
    run = Child.run

    def run_and_die(self: Child, request: Request) -> RunEnd:
        end = run(self, request)
        if request.job.id == first.id:
            self.kill()
            self._process.join(10)
        return end

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Child, "run", run_and_die)
        await drain(shop_app, pool=1)
    assert [job.status().state for job in (first, second)] == ["succeeded"] * 2
    assert [job.wait(5)["attempt"] for job in (first, second)] == [1, 1]
    assert first.wait(5)["pid"] != second.wait(5)["pid"]


async def test_an_error_of_a_process_that_cannot_be_encoded(shop_app: dibs.App) -> None:
    job = shop.undecodable.enqueue()
    await drain(shop_app, pool=1)
    assert "ValueError: no such file: ?" in shop_app.client.why(job.id)


async def test_a_memory_cap(shop_app: dibs.App) -> None:
    fits, grows = shop.grows.enqueue(1_000_000), shop.grows.enqueue(500_000_000)
    again = shop.grows.enqueue(1_000_000)
    await drain(shop_app, pool=1)
    assert fits.wait(5) == again.wait(5) == 1_000_000
    assert grows.status().state is dibs.State.EXHAUSTED
    assert "more than 200000000 bytes" in shop_app.client.why(grows.id)


async def test_a_task_a_process_cannot_find_is_refused_before_any_job_is_claimed(app: dibs.App) -> None:
    @app.task(process=True)
    def hidden() -> None: ...

    hidden.enqueue()
    with pytest.raises(dibs.InvalidArgument, match="cannot find the task"):
        await drain(app)
    assert app.client.queues.depth("q").ready == 1


# Threads


async def test_an_abandoned_thread_gives_its_place_back(app: dibs.App) -> None:
    let_go, seen = threading.Event(), []

    @app.task(name="hangs", timeout=0.1, retry=dibs.Retry(max_attempts=1))
    def hangs() -> None:
        let_go.wait(30)
        seen.append("late")

    @app.task(name="quick")
    def quick() -> str:
        return "done"

    stuck, fine = hangs.using(priority=9).enqueue(), quick.enqueue()
    await drain(app, threads=1)
    assert stuck.status().state is dibs.State.EXHAUSTED
    assert fine.wait(5) == "done"
    let_go.set()
    wait_until(lambda: seen == ["late"], what="the thread goes on to its end")
    assert stuck.status().state is dibs.State.EXHAUSTED


async def test_waiting_for_a_thread_is_not_the_handlers_time(app: dibs.App) -> None:
    @app.task(name="naps", timeout=2, retry=dibs.Retry(max_attempts=1))
    def naps() -> str:
        threading.Event().wait(0.7)
        return "slept"

    jobs = [naps.enqueue() for _ in range(4)]
    await drain(app, threads=1)
    assert [job.wait(5) for job in jobs] == ["slept"] * 4


async def test_options_of_using_are_for_all_calls_of_a_bulk_enqueue(app: dibs.App) -> None:
    @app.task(name="plain", priority=3)
    async def plain(n: int) -> None: ...

    @app.task(name="polls", repeat=60)
    async def polls() -> None: ...

    urgent = plain.using(priority=9, queue="urgent", group="acme", delay=3600)
    made = urgent.enqueue_many(
        [
            plain.call(1),
            plain.using(priority=3, queue="mine").call(2),
            urgent.using(group="other").call(3),
            dibs.NewJob(queue="by_hand", kind="plain", payload={"n": 4}),
        ]
    )
    ids = [*(job.id for job in made), *[job.id for job in await urgent.aenqueue_many([plain.call(5)])]]
    shown = [app.client.show(id) or {} for id in ids]
    assert [(one["queue"], one["priority"], one["group"], one["state"]) for one in shown] == [
        ("urgent", 9, "acme", "scheduled"),
        ("mine", 3, "acme", "scheduled"),
        ("urgent", 9, "other", "scheduled"),
        ("by_hand", 9, "acme", "scheduled"),
        ("urgent", 9, "acme", "scheduled"),
    ]
    keyed = polls.using(dedup_key="poller")
    assert [job.is_new for job in (*keyed.enqueue_many([polls.call()]), keyed.enqueue())] == [True, False]
    [[plain_again]] = [plain.enqueue_many([plain.call(6)])]
    assert (app.client.show(plain_again.id) or {})["priority"] == 3


def test_what_a_task_or_a_payload_cannot_be_is_refused_at_once(app: dibs.App) -> None:
    for retry in (3, 0, True, False):
        with pytest.raises(dibs.InvalidArgument, match=r"is a dibs\.Retry, not"):
            app.task(name="bad", retry=retry)(print)  # type: ignore[call-overload]
    client = app.client
    for payload in ("a\0b", {"a\0": 1}, ["\\", {"b": "\\\0"}]):
        with pytest.raises(dibs.InvalidArgument, match="NUL character"):
            client.enqueue("q", "k", payload)
    with pytest.raises(dibs.InvalidArgument, match="lone surrogate"):
        client.enqueue("q", "k", "\ud800")
    assert (client.show(client.enqueue("q", "k", "\\u0000").id) or {})["payload"] == "\\u0000"


async def test_a_bulk_enqueue_of_what_is_no_job_explains_itself(app: dibs.App) -> None:
    @app.task(name="plain")
    async def plain(n: int) -> None: ...

    bad: list[Any] = [[1, 2], [plain.call(1), "x"], plain.call(1), 5]
    for given in bad:
        for enqueue_many in (plain.enqueue_many, app.enqueue_many, app.client.enqueue_many):
            with pytest.raises(dibs.InvalidArgument, match="enqueue_many takes"):
                enqueue_many(given)
        with pytest.raises(dibs.InvalidArgument, match="enqueue_many takes"):
            await plain.aenqueue_many(given)
        with pytest.raises(dibs.InvalidArgument, match="enqueue_many takes"):
            await app.aenqueue_many(given)
    assert app.client.find_jobs().jobs == []


# Transactions


async def test_effects_in_the_transaction_happen_with_the_completion(
    app: dibs.App, db: psycopg.Connection[Any]
) -> None:
    db.execute("create table written (word text)")

    @app.task(name="follows")
    async def follows() -> None: ...

    @app.task(name="writes", retry=NOW)
    async def writes(word: str) -> None:
        here = dibs.context()
        async with here.transaction() as conn:
            await conn.execute("insert into written values (%s)", (word,))
            if word == "fails" and here.attempt == 1:
                raise RuntimeError("not this time")
            here.enqueue(follows.call())
            here.result = word.upper()

    @app.task(name="writes_in_a_thread")
    def writes_in_a_thread(word: str) -> str:
        with dibs.context().transaction() as conn:
            conn.execute("insert into written values (%s)", (word,))
        return "not kept"

    jobs = [writes.enqueue("once"), writes.enqueue("fails"), writes_in_a_thread.enqueue("thread")]
    await drain(app)
    assert sorted(db.execute("select word from written").fetchall()) == [("fails",), ("once",), ("thread",)]
    assert [job.wait(5) for job in jobs] == ["ONCE", "FAILS", None]
    assert app.client.find_jobs({"kind": "follows"}).jobs[1].state == "succeeded"


async def test_what_a_handler_sets_in_its_session_is_gone_for_the_next(app: dibs.App) -> None:
    """With row security, the tenant of one job would be that of the next."""
    spoil = "set app.tenant = 'ACME'; set role dibs_admin; create temporary table mine (a int); listen news"
    look = """select nullif(current_setting('app.tenant', true), ''), current_user = session_user,
        to_regclass('pg_temp.mine') is null, (select count(*) from pg_listening_channels())"""
    seen: list[Any] = []

    @app.task(name="on_the_loop")
    async def on_the_loop() -> None:
        async with dibs.context().transaction() as conn:
            seen.append(await (await conn.execute(look)).fetchone())
            await conn.execute(spoil)
            conn.row_factory = dict_row

    @app.task(name="in_a_thread")
    def in_a_thread() -> None:
        with dibs.context().transaction() as conn:
            seen.append(conn.execute(look).fetchone())
            conn.execute(spoil)
            conn.row_factory = dict_row

    for _ in range(5):
        on_the_loop.enqueue()
        in_a_thread.enqueue()
    await drain(app, slots=1, connections=1)
    assert seen == [(None, True, True, 0)] * 10


async def test_a_transaction_of_a_lost_lease_is_rolled_back(app: dibs.App, db: psycopg.Connection[Any]) -> None:
    db.execute("create table written (word text)")
    caught: list[BaseException] = []

    @app.task(name="writes")
    async def writes() -> None:
        here = dibs.context()
        try:
            async with here.transaction() as conn:
                await conn.execute("insert into written values ('lost')")
                # Somebody else ends the job meanwhile, as a rescuer would.
                app.client.release(here.job)
        except dibs.LeaseLost as lost:
            caught.append(lost)
            raise

    job = writes.using(max_attempts=1).enqueue()
    await drain(app, slots=1)
    assert len(caught) >= 1
    assert db.execute("select count(*) from written").fetchone() == (0,)
    assert not job.status().state.has_ended


async def test_a_transaction_in_a_process_of_its_own(shop_app: dibs.App, db: psycopg.Connection[Any]) -> None:
    db.execute("create table written (word text)")
    job = shop.writes.enqueue("there")
    await drain(shop_app)
    assert job.status().state is dibs.State.SUCCEEDED
    assert db.execute("select word from written").fetchall() == [("there",)]


async def test_after_its_transaction_a_job_has_ended(app: dibs.App) -> None:
    said: list[str] = []

    @app.task(name="twice")
    async def twice() -> None:
        here = dibs.context()
        async with here.transaction():
            pass
        for late in (here.transaction, lambda: here.enqueue(twice.call())):
            with pytest.raises(dibs.DibsError, match="completed already"):
                late()
        said.append("checked")
        raise RuntimeError("too late to fail")

    job = twice.enqueue()
    await drain(app)
    assert said == ["checked"]
    assert job.status().state is dibs.State.SUCCEEDED


# Batches


async def test_a_batch_handler_answers_for_each_job(app: dibs.App) -> None:
    sizes: list[int] = []

    @app.batch(max=10, within=0.2, name="index", retry=NOW)
    async def index(numbers: list[int]) -> list[int | Exception]:
        sizes.append(len(numbers))
        assert [c.job.payload["item"] for c in dibs.context().batch] == numbers
        return [ValueError(f"{n} is odd") if n % 2 else n * 10 for n in numbers]

    jobs = index.enqueue_many(index.call(n) for n in range(20))
    with pytest.raises(dibs.InvalidArgument, match="Expected `int`"):
        index.enqueue("one")  # type: ignore[arg-type]
    broken = app.client.enqueue("q", "index", {"item": "no number"})
    await drain(app)
    assert max(sizes) == 10
    assert [job.wait(5) for job in jobs[::2]] == [n * 10 for n in range(0, 20, 2)]
    assert {job.status().state for job in jobs[1::2]} == {dibs.State.EXHAUSTED}
    assert "1 is odd" in app.client.why(jobs[1].id)
    assert app.client.status(broken.id).state is dibs.State.FAILED


async def test_a_batch_takes_what_came_in_time(app: dibs.App) -> None:
    sizes: list[int] = []

    @app.batch(max=1000, within=0.05, name="sync")
    def sync(numbers: list[int]) -> None:
        sizes.append(len(numbers))

    sync.enqueue_many(sync.call(n) for n in range(7))
    await drain(app)
    assert sizes == [7]
    assert app.client.queues.depth("q").waiting == 0


async def test_a_batch_handler_that_raises_or_miscounts_fails_all(app: dibs.App) -> None:
    @app.batch(max=5, name="wrong", retry=dibs.Retry(max_attempts=1))
    async def wrong(numbers: list[int]) -> list[int]:
        if 0 in numbers:
            raise RuntimeError("boom")
        return numbers[1:]

    first = wrong.enqueue_many(wrong.call(n) for n in range(5))
    await drain(app)
    second = wrong.enqueue_many(wrong.call(n) for n in range(1, 4))
    await drain(app)
    assert {job.status().state for job in (*first, *second)} == {dibs.State.EXHAUSTED}
    assert "boom" in app.client.why(first[3].id)
    assert "returned 2 outcomes for 3 jobs" in app.client.why(second[0].id)


# Middleware


class Wraps(dibs.Middleware):
    def __init__(self, name: str, seen: list[str]) -> None:
        self.name, self.seen = name, seen

    def enqueue(
        self, jobs: Sequence[NewJob], proceed: Callable[[Sequence[NewJob]], Sequence[Enqueued]]
    ) -> Sequence[Enqueued]:
        self.seen.append(f"{self.name} enqueues {len(jobs)}")
        return proceed(jobs)

    async def aenqueue(
        self, jobs: Sequence[NewJob], proceed: Callable[[Sequence[NewJob]], Awaitable[Sequence[Enqueued]]]
    ) -> Sequence[Enqueued]:
        self.seen.append(f"{self.name} aenqueues {len(jobs)}")
        return await proceed(jobs)

    def run(self, context: dibs.Context, proceed: Callable[[], Any]) -> Any:
        assert context is dibs.context()
        self.seen.append(f"{self.name} in {threading.current_thread().name.split('-')[1]}")
        return proceed() + self.name

    async def arun(self, context: dibs.Context, proceed: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await proceed()
        except ZeroDivisionError:
            self.seen.append(f"{self.name} caught it in attempt {context.attempt}")
            raise


async def test_middleware_wraps_enqueue_and_run(app: dibs.App) -> None:
    seen: list[str] = []

    @app.task(name="sync")
    def sync() -> str:
        return "x"

    @app.task(name="fails", retry=dibs.Retry(max_attempts=1))
    async def fails() -> float:
        return 1 / 0

    app.add_middleware(Wraps("A", seen))
    app.add_middleware(Wraps("B", seen))
    job = sync.enqueue()
    await fails.aenqueue()
    await drain(app)
    await app.aclose()
    assert seen[:4] == ["A enqueues 1", "B enqueues 1", "A aenqueues 1", "B aenqueues 1"]
    assert sorted(seen[4:]) == ["A caught it in attempt 1", "A in handler", "B caught it in attempt 1", "B in handler"]
    assert job.wait(5) == "xBA"


# Events


async def test_events_tell_what_happens(app: dibs.App) -> None:
    told: list[dibs.events.Event] = []
    for kind in dibs.events.Event.__subclasses__():
        app.events.on(kind, told.append)

    @app.task(name="fails", retry=dibs.Retry(max_attempts=2, backoff=dibs.constant(0)))
    async def fails() -> None:
        raise ValueError("no")

    @app.task(name="works")
    async def works() -> None: ...

    fails.enqueue()
    works.enqueue()
    app.client.enqueue("q", "nobodys")
    await drain(app, upkeep=True)

    def of(kind: type[Any]) -> list[Any]:
        return [event for event in told if type(event) is kind]

    assert [e.outcome for e in of(dibs.events.JobEnqueued)] == ["enqueued"] * 2
    ends = sorted((e.job.kind, e.outcome, e.state, e.error) for e in of(dibs.events.RunEnded))
    assert ends == [
        ("fails", "failed", "exhausted", "ValueError: no"),
        ("fails", "failed", "ready", "ValueError: no"),
        ("nobodys", "released", "blocked", "no task nobodys"),
        ("works", "succeeded", "succeeded", None),
    ]
    assert len(of(dibs.events.JobStarted)) == 3
    assert [e.job.kind for e in of(dibs.events.KindUnknown)] == ["nobodys"]
    assert sum(e.count for e in of(dibs.events.JobsClaimed)) == 4
    assert [type(e).__name__ for e in told if "Worker" in type(e).__name__] == [
        "WorkerStarted", "WorkerStopping", "WorkerStopped",
    ]  # fmt: skip


async def test_a_subscriber_that_raises_changes_nothing(app: dibs.App, caplog: pytest.LogCaptureFixture) -> None:
    @app.on(dibs.events.RunEnded)
    def breaks(event: dibs.events.RunEnded) -> None:
        raise RuntimeError("subscriber")

    @app.task(name="works")
    async def works() -> None: ...

    job = works.enqueue()
    await drain(app)
    assert job.status().state is dibs.State.SUCCEEDED
    assert "a subscriber to RunEnded failed" in caplog.text


# Sharing


async def test_a_queue_has_its_own_concurrency(app: dibs.App) -> None:
    running = most = 0

    @app.task(name="counts", queue="narrow")
    async def counts() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    counts.enqueue_many(counts.call() for _ in range(20))
    await drain(app, queues={"narrow": Share(slots=3), "q": Share()})
    assert most == 3
    assert app.client.queues.depth("narrow").waiting == 0


async def test_a_task_has_a_limit_for_all_workers_together(app: dibs.App) -> None:
    running = most = 0

    @app.task(name="narrow", concurrency=3)
    async def narrow() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    jobs = narrow.enqueue_many(narrow.call() for _ in range(30))
    workers = [Worker(app, WorkerSettings(["q"], upkeep=False, poll=0.05)) for _ in range(2)]
    working = [asyncio.create_task(worker.run()) for worker in workers]
    async with asyncio.timeout(40):
        while not all(job.status().state.has_ended for job in jobs):  # noqa: ASYNC110 - the database tells
            await asyncio.sleep(0.05)
    for worker in workers:
        worker.stop()
    await asyncio.gather(*working)
    assert most == 3


async def test_weights_share_the_room(app: dibs.App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dibs.worker.producer.AHEAD", 0.0)  # Else a few large claims are all there is.
    order: list[str] = []

    @app.task(name="notes")
    async def notes(queue: str) -> None:
        order.append(queue)
        await asyncio.sleep(0.002)

    for queue in ("bulk", "fast"):
        notes.enqueue_many(notes.using(queue=queue).call(queue) for _ in range(400))
    await drain(app, queues={"bulk": Share(weight=1), "fast": Share(weight=3)}, slots=20)
    half = order[:400]
    assert 250 <= half.count("fast") <= 350
    assert len(order) == 800


# Repeating


async def test_a_job_that_repeats_goes_on_until_cancelled(app: dibs.App, clock: Any) -> None:
    runs: list[int] = []

    @app.task(name="polls", repeat=60, retry=NOW)
    async def polls(n: int) -> None:
        runs.append(dibs.context().attempt)
        if len(runs) == 2:
            raise RuntimeError("once")

    first = polls.using(dedup_key="the poller", priority=8).enqueue(7)
    assert not polls.using(dedup_key="the poller").enqueue(7).is_new
    for _ in range(3):
        await drain(app)
        clock.move(61)
    assert runs == [1, 1, 2, 1]
    assert first.status().state is dibs.State.SUCCEEDED
    [waiting] = [job for job in app.client.find_jobs({"kind": "polls"}).jobs if job.state in {"scheduled", "ready"}]
    assert waiting.priority == 8
    again = polls.using(dedup_key="the poller").enqueue(7)
    assert again.id == waiting.id
    again.cancel()
    clock.move(61)
    await drain(app)
    assert len(runs) == 4


async def test_a_job_that_repeats_goes_on_in_a_sharded_queue(app: dibs.App, clock: Any) -> None:
    app.client.queues.set("q", shards=4)
    runs: list[int] = []

    @app.task(name="polls", repeat=60)
    async def polls(n: int) -> None:
        runs.append(n)

    jobs = [polls.enqueue(n) for n in range(4)]
    for _ in range(2):
        await drain(app)
        clock.move(61)
    assert sorted(runs) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert {job.status().state for job in jobs} == {"succeeded"}


async def test_a_job_that_repeats_goes_on_after_its_own_transaction(app: dibs.App, clock: Any) -> None:
    runs: list[int] = []

    @app.task(name="polls", repeat=60)
    async def polls() -> None:
        async with dibs.context().transaction():
            runs.append(1)

    polls.enqueue()
    for _ in range(3):
        await drain(app)
        clock.move(61)
    assert runs == [1, 1, 1]
    assert app.client.queues.depth("q").waiting == 1


# Results


async def test_a_result_that_is_no_json_fails_for_good(app: dibs.App) -> None:
    @app.task(name="odd")
    async def odd() -> Any:
        return object()

    job = odd.enqueue()
    await drain(app)
    assert job.status().state is dibs.State.FAILED
    assert "cannot be kept as JSON" in app.client.why(job.id)


async def test_a_completion_that_is_refused_spoils_no_other(app: dibs.App) -> None:
    """One poison job in a batch must not fail the batch."""

    @app.task(name="follows")
    async def follows(bad: bool) -> None:
        if bad:
            dibs.context().enqueue(dibs.NewJob(queue="q", kind="k", priority=999))

    jobs = follows.enqueue_many(follows.call(n == 7) for n in range(20))
    await drain(app)
    assert [job.status().state for job in jobs].count(dibs.State.SUCCEEDED) == 19
    assert jobs[7].status().state is dibs.State.FAILED
    assert "the completion was refused" in app.client.why(jobs[7].id)


async def test_a_follow_up_that_cannot_be_sent_spoils_no_other(app: dibs.App) -> None:
    @app.task(name="follows")
    async def follows(bad: bool) -> None:
        if bad:
            dibs.context().enqueue(dibs.NewJob(queue="q", kind="k", payload=object()))

    jobs = follows.enqueue_many(follows.call(n == 3) for n in range(10))
    await drain(app)
    assert [job.status().state for job in jobs].count(dibs.State.SUCCEEDED) == 9
    assert jobs[3].status().state is dibs.State.FAILED


async def test_a_handler_that_exits_or_cancels_itself_ends_its_own_job_only(app: dibs.App) -> None:
    @app.task(name="exits", retry=dibs.Retry(max_attempts=1))
    async def exits(how: str) -> None:
        if how == "exit":
            raise SystemExit(3)
        if how == "cancel":
            task = asyncio.create_task(asyncio.sleep(60))
            task.cancel()
            await task

    @app.task(name="exits_in_a_thread", retry=dibs.Retry(max_attempts=1))
    def exits_in_a_thread() -> None:
        raise SystemExit(3)

    jobs = [exits.enqueue(how) for how in ("exit", "cancel", "fine")]
    jobs.append(exits_in_a_thread.enqueue())
    await drain(app, slots=1)
    assert [job.status().state for job in jobs] == ["exhausted", "exhausted", "succeeded", "exhausted"]
    assert "SystemExit: 3" in app.client.why(jobs[0].id)


async def test_handles_for_async_code(app: dibs.App) -> None:
    @app.task(name="double")
    async def double(n: int) -> int:
        return 2 * n

    jobs = await double.aenqueue_many(double.call(n) for n in range(2))
    one = await double.aenqueue(4)
    gone = await double.using(delay=60).aenqueue(5)
    assert await gone.cancel("ordered twice") == "cancelled"
    assert (await gone.status()).reason == "ordered twice"
    await drain(app)
    assert [await job.wait(5) for job in (*jobs, one)] == [0, 2, 8]
    with pytest.raises(dibs.JobEnded, match="ended as cancelled"):
        await gone.wait(5)
    with pytest.raises(dibs.WaitTimeout, match="still scheduled"):
        await (await double.using(delay=60).aenqueue(6)).wait(0.01)
    await app.aclose()


# How long the jobs of an app wait


async def test_an_app_says_how_long_its_jobs_may_wait(dsn: str, client: dibs.Client) -> None:
    app, forever = dibs.App(dsn, queue="q", ttl=timedelta(days=7)), dibs.App(dsn, queue="q", ttl=None)

    @app.task(name="usual")
    async def usual() -> None: ...

    @app.task(name="short", ttl=60)
    async def short() -> None: ...

    @app.batch(name="listed")
    async def listed(items: list[int]) -> None: ...

    @forever.task(name="kept")
    async def kept() -> None: ...

    jobs: list[Any] = [
        usual.enqueue(),
        usual.using(ttl=5).enqueue(),
        short.enqueue(),
        listed.enqueue(1),
        await usual.aenqueue(),
    ]
    jobs += [app.enqueue_many([usual.call()])[0], kept.enqueue(), app.client.enqueue("q", "of no task")]
    week, day = 7 * 86400, 86400
    assert [lifetime(client, job.id) for job in jobs] == [week, 5, 60, week, week, week, None, day]
    await drain(app)
    other = dibs.App(dsn)
    assert lifetime(client, other.remote("usual").enqueue().id) == week
    await app.aclose()
    for each in (app, forever, other):
        each.close()


def lifetime(client: dibs.Client, id: UUID) -> float | None:
    """For how many seconds after it is due a job may wait."""
    [job] = client.find_jobs({"ids": [id]}).jobs
    return None if job.expire_at is None else (job.expire_at - job.due_at).total_seconds()


@pytest.mark.parametrize("ttl", [0, -1, timedelta(0)])
def test_a_ttl_that_is_no_time_is_refused(app: dibs.App, ttl: Any) -> None:
    with pytest.raises(dibs.InvalidArgument, match="a ttl is above 0 seconds") as refused:
        dibs.App(ttl=ttl)
    assert "None" in str(refused.value.hint)
    with pytest.raises(dibs.InvalidArgument, match="a task's ttl is a number of seconds"):
        app.task(name="never", ttl=None)(print)  # type: ignore[call-overload]


# Enqueueing by name


async def test_a_producer_without_the_code_enqueues_by_name(app: dibs.App, dsn: str) -> None:
    @app.task(name="mail.welcome", queue="mail", priority=8, retry=dibs.Retry(max_attempts=7, backoff=dibs.constant(3)))
    async def welcome(user_id: int, lang: str = "en") -> str:
        return f"{user_id} {lang}"

    await drain(app, queues=["mail"])
    producer = dibs.App(dsn)
    remote = producer.remote("mail.welcome")
    jobs = [remote.enqueue(42), remote.using(priority=2).enqueue(user_id=43, lang="de")]
    jobs.append(await remote.aenqueue(44))  # type: ignore[arg-type]
    waiting = {j.id: j for j in producer.client.find_jobs({"queue": "mail"}).jobs}
    assert [(waiting[j.id].priority, waiting[j.id].max_attempts) for j in jobs] == [(8, 7), (2, 7), (8, 7)]
    for args, kwargs, words in (
        ((), {}, "argument 'user_id' is missing"),
        ((1, "en", 3), {}, "3 arguments given, 2 taken"),
        ((1,), {"lnag": "de"}, "did you mean 'lang'"),
        ((1,), {"user_id": 2}, "given twice"),
    ):
        with pytest.raises(dibs.InvalidArgument, match=words):
            remote.enqueue(*args, **kwargs)
    wrong = remote.enqueue("forty-two")
    with pytest.raises(dibs.errors.UnknownTask, match=r"did you mean 'mail\.welcome'"):
        producer.remote("mail.welcom").enqueue(1)
    await drain(app, queues=["mail"])
    states = [s.state for s in producer.client.status_many([j.id for j in (*jobs, wrong)])]
    assert states == ["succeeded", "succeeded", "succeeded", "failed"]
    await producer.aclose()
    producer.close()


# Progress


async def test_a_handler_says_how_far_it_has_come(app: dibs.App) -> None:
    seen, go_on = asyncio.Event(), asyncio.Event()

    @app.task(name="resize")
    async def resize() -> None:
        dibs.context().progress(1, 10)
        dibs.context().progress(3, 10, message="resizing", data={"file": "c.png"})
        seen.set()
        await go_on.wait()

    @app.task(name="in_a_thread")
    def in_a_thread() -> None:
        dibs.context().progress(0.5)

    job = resize.enqueue()
    in_a_thread.enqueue()
    draining = asyncio.create_task(drain(app))
    async with asyncio.timeout(30):
        await seen.wait()
        async with dibs.AsyncClient(app.dsn) as client:
            async for status in client.watch(job.id):
                if status.message == "resizing":
                    go_on.set()
    await draining
    assert (status.state, status.fraction, status.data) == ("succeeded", 0.3, {"file": "c.png"})


async def test_progress_of_a_process_of_its_own(shop_app: dibs.App) -> None:
    job = shop.tells.enqueue()
    await drain(shop_app)
    assert shop_app.client.status(job.id).message == "from there"


# One at a time


async def test_workers_share_the_shards_of_a_queue_and_pull_alone_from_each(app: dibs.App, dsn: str) -> None:
    app.client.queues.set("orders", shards=4, shard_lease=5)
    app.client.queues.set("ledger", exclusive=True, shard_lease=5)
    running: dict[str, int] = {}

    @app.task(name="counts", queue="orders")
    async def counts() -> None:
        me = dibs.context().job.queue
        running[me] = running.get(me, 0) + 1
        await asyncio.sleep(0.001)

    counts.enqueue_many(counts.using(shard_key=str(n)).call() for n in range(200))
    counts.enqueue_many(counts.using(queue="ledger").call() for n in range(20))
    workers = [Worker(app, WorkerSettings(["orders", "ledger"], upkeep=False, poll=0.1)) for _ in range(2)]
    working = [asyncio.create_task(worker.run()) for worker in workers]
    async with asyncio.timeout(40):
        while any(d.waiting + d.running for d in map(app.client.queues.depth, ("orders", "ledger"))):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    holders = {(s.queue, s.shard): s.worker for s in app.client.queues.shards()}
    for worker in workers:
        worker.stop()
    await asyncio.gather(*working)
    assert sum(running.values()) == 220
    assert set(running) == {"orders", "orders#1", "orders#2", "orders#3", "ledger"}
    assert len(holders) == 5
    assert None not in holders.values()
