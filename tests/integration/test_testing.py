"""dibs.testing, used directly: inline mode, drain, assertions, crashes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import psycopg
import pytest

import dibs
from dibs.db.admin import at_database
from dibs.testing import (
    Clock,
    Databases,
    HandlerFailed,
    Performed,
    adrain,
    assert_enqueued,
    at,
    drain,
    enqueued,
    inline,
    perform,
    pointed,
    refute_enqueued,
)
from dibs.testing._assert import READABLE
from dibs.testing._perform import DEFAULT_ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Connect

DSNS = ["postgresql:///a?host=%2Ftmp&port=5", "postgresql://me:p%40@host:1/a?sslmode=require", "host=/tmp dbname=a"]
SOURCES = Path(dibs.__file__).parent.parent


@pytest.fixture
def app(dsn: str) -> Iterator[dibs.App]:
    app = dibs.App(dsn, queue="q")
    yield app
    app.close()


class Throttled(Exception):
    pass


ENDS = ("returns", "again", "value", "final", "throttled", "later", "snooze", "slow", "follows", "unreadable", "writes")


def add_tasks(app: dibs.App) -> dict[str, dibs.Task[Any, Any]]:
    """The same handler as a coroutine and as a plain function, with every way to end."""

    @app.task(name="next", queue="other")
    def follow(n: int) -> int:
        return n

    def end(how: str) -> Any:
        here = dibs.context()
        assert (here.attempt, here.is_last_attempt) == (here.job.attempt, here.job.attempt == 2)
        errors = {
            "again": RuntimeError("again"), "value": ValueError("bad"), "final": dibs.GiveUp("no"),
            "throttled": Throttled("slow"), "later": dibs.RetryAfter(1800), "snooze": dibs.Snooze(900),
        }  # fmt: skip
        if how in errors:
            raise errors[how]
        if how == "follows":
            here.enqueue(follow.call(7))
        return {"how": how, "at": datetime(2026, 1, 2, tzinfo=UTC)} if how != "unreadable" else object()

    retry = dibs.Retry(2, dibs.constant(0), never=(ValueError,), after={Throttled: 3600})

    @app.task(name="async", retry=retry, timeout=0.3)
    async def asynchronous(how: str) -> Any:
        if how == "slow":
            await asyncio.Event().wait()
        if how == "writes":
            async with dibs.context().transaction() as conn:
                await conn.execute("create table if not exists written (by text)")
        return end(how) if how != "writes" else None

    @app.task(name="plain", retry=retry, timeout=0.3)
    def plain(how: str) -> Any:
        if how == "slow":
            threading.Event().wait(0.4)
        if how == "writes":
            with dibs.context().transaction() as conn:
                conn.execute("create table if not exists written (by text)")
        return end(how) if how != "writes" else None

    @app.batch(name="batch", within=0, retry=retry)
    def batch(hows: list[str]) -> list[Any]:
        return [ValueError(how) if how == "value" else how for how in hows]

    @app.task(name="repeats", repeat=3600)
    def repeats(how: str) -> str:
        return how

    class Marks(dibs.Middleware):
        def run(self, context: dibs.Context, proceed: Any) -> Any:
            return marked(context, proceed())

        async def arun(self, context: dibs.Context, proceed: Any) -> Any:
            return marked(context, await proceed())

    def marked(context: dibs.Context, value: Any) -> Any:
        return {**value, "marked": context.attempt} if isinstance(value, dict) else value

    app.add_middleware(Marks())
    return {"async": asynchronous, "plain": plain, "batch": batch, "repeats": repeats}


def records(client: dibs.Client) -> dict[str, Any]:
    """What the database remembers of each job, but for times, ids and the lines of tracebacks."""
    told = {}
    for job in enqueued(client):
        shown = client.show(job.id)
        assert shown
        runs = [(a["outcome"], a["result"], (a["error"] or "").splitlines()[:1]) for a in shown["attempts"]]
        told[f"{job.kind} {job.payload} {job.state}"] = (job.state, shown["charged"], round(job.delay, -2), runs)
    return told


def test_inline_ends_jobs_as_a_worker_does(admin_dsn: str, template: str) -> None:
    """The same jobs, run inline and by a worker, leave the same record."""
    fresh = Databases(admin_dsn, template).fresh
    with fresh() as here, fresh() as there:
        app, other = dibs.App(here, queue="q"), dibs.App(there, queue="q")
        with inline(app):
            enqueue_each(app)
        enqueue_each(other)
        drain(other)
        assert records(app.client) == records(other.client)
        assert len(enqueued(app)) == 2 * len(ENDS) + 8
        app.close()
        other.close()


def enqueue_each(app: dibs.App) -> None:
    tasks = add_tasks(app)
    for how in ENDS:
        tasks["async"].enqueue(how)
        tasks["plain"].enqueue(how)
    tasks["batch"].enqueue("value")
    tasks["batch"].enqueue("fine")
    tasks["repeats"].enqueue("again")
    app.client.enqueue("q", "async", {"who": 1})
    app.client.enqueue("q", "unknown")


def test_inline_runs_in_the_callers_thread_and_nested(app: dibs.App) -> None:
    seen: list[Any] = []

    @app.task
    def outer(n: int) -> int:
        seen.append(("outer", threading.current_thread(), dibs.context().id))
        inner.enqueue(n + 1)
        seen.append(("back", dibs.context().id))
        return n

    @app.task
    def inner(n: int) -> int:
        seen.append(("inner", dibs.context().id))
        return n

    with inline(app):
        job = outer.enqueue(1)
        assert (job.status().state, job.result(), job.wait(0)) == ("succeeded", 1, 1)
    nested = assert_enqueued(inner, 2, state="succeeded")[0]
    assert seen == [("outer", threading.current_thread(), job.id), ("inner", nested.id), ("back", job.id)]
    assert outer.enqueue(2).status().state == "ready"


def test_inline_checks_arguments_and_raises_what_a_handler_raised(app: dibs.App) -> None:
    @app.task(retry=dibs.Retry(3, dibs.constant(60)))
    def divides(n: int) -> float:
        return 1 / n

    with inline(app), pytest.raises(dibs.InvalidArgument, match="Expected `int`"):
        divides.enqueue("x")  # type: ignore[arg-type]
    with inline(app, raise_errors=True), pytest.raises(ZeroDivisionError) as caught:
        divides.enqueue(0)
    assert caught.traceback[-1].name == "divides"
    (job,) = assert_enqueued(divides, 0, state="scheduled")
    assert "ZeroDivisionError" in app.client.why(job.id)


def test_inline_leaves_what_is_due_later(app: dibs.App, clock: Clock) -> None:
    ran: list[int] = []

    @app.task
    def later(n: int) -> None:
        ran.append(n)

    clock.freeze()
    with inline(app):
        later.using(delay=60).enqueue(1)
        assert ran == []
        clock.move(61)
        later.enqueue(2)
    assert ran == [1, 2]


def test_inline_runs_within_the_callers_transaction(app: dibs.App, db: psycopg.Connection[Any]) -> None:
    ran: list[int] = []

    @app.task
    def notes(n: int) -> None:
        ran.append(n)

    with inline(app), db.transaction(force_rollback=True):
        notes.using(conn=db).enqueue(1)
        assert_enqueued(notes, 1, state="succeeded", conn=db)
        refute_enqueued(notes)
    assert (ran, enqueued(app)) == ([1], [])


async def test_inline_in_async_code(app: dibs.App) -> None:
    seen: list[Any] = []

    @app.task
    async def on_the_loop(n: int) -> int:
        seen.append(asyncio.get_running_loop())
        return n + dibs.context().attempt

    @app.task
    def in_a_thread(n: int) -> int:
        seen.append(threading.current_thread())
        return n

    @app.task
    async def fails() -> None:
        raise dibs.GiveUp("no")

    with inline(app):
        first, second = await on_the_loop.aenqueue(1), await in_a_thread.aenqueue(2)
        third = on_the_loop.enqueue(3)
        await on_the_loop.using(queue="far").aenqueue(4)
    assert [await first.result(), await second.result(), third.result()] == [2, 2, 4]
    loop = asyncio.get_running_loop()
    assert (seen[0], seen[2] is loop, seen[3]) == (loop, False, loop)
    assert seen[1] is not threading.current_thread()
    with inline(app, raise_errors=True), pytest.raises(dibs.GiveUp):
        await fails.aenqueue()
    await app.aclose()


def test_drain_says_what_ended_how(app: dibs.App, clock: Clock) -> None:
    @app.task(retry=dibs.Retry(3, dibs.constant(60)))
    async def divides(n: int) -> float:
        return 1 / n

    assert drain(app).by_state == {}
    for n in (0, 1, 2):
        divides.enqueue(n)
    divides.using(queue="elsewhere").enqueue(3)
    app.client.message_queue("foreign").send(b"not ours")
    drained = drain(app)
    assert drained.by_state == {"succeeded": 3}
    assert (len(drained), drained.moved) == (3, 0.0)
    assert {(job.kind, job.state) for job in drained.left} == {(divides.name, "scheduled"), ("message", "ready")}
    clock.freeze()
    drained = drain(app, include_scheduled=True)
    assert drained.by_state == {"exhausted": 1}
    assert 0 < drained.moved <= 121
    (job,) = drained.ended
    assert "division by zero" in (job.reason or "")


def test_drain_moves_the_clock_only_so_far(app: dibs.App, clock: Clock) -> None:
    ran: list[int] = []

    @app.task
    def beats(n: int) -> None:
        ran.append(n)
        raise dibs.Snooze(3600)

    clock.freeze()
    began = clock.now()
    beats.enqueue(1)
    drained = drain(app, include_scheduled=True, within=6 * 3600)
    assert len(ran) == 7
    assert (drained.by_state, round(drained.moved)) == ({}, 6 * 3600)
    assert round((clock.now() - began).total_seconds()) == 6 * 3600
    with pytest.raises(dibs.InvalidArgument, match="include_scheduled=True"):
        drain(app, within=1)


def test_drain_ends_where_nothing_of_its_own_is_left(app: dibs.App, clock: Clock) -> None:
    @app.task
    def known() -> None: ...

    clock.freeze()
    known.enqueue()
    known.using(queue="paused").enqueue()
    app.client.queues.pause("paused")
    app.client.enqueue("q", "unknown")
    drained = drain(app, include_scheduled=True)
    assert drained.by_state == {"succeeded": 1}
    assert [(job.kind, job.state) for job in drained.left] == [(known.name, "ready"), ("unknown", "blocked")]
    other = dibs.App(app.dsn, queue="q")
    other.task(name="unknown")(lambda: None)
    assert drain(other).by_state == {"succeeded": 1}
    other.close()


def test_drain_without_a_virtual_clock_says_so(installed_dsn: str) -> None:
    app = dibs.App(installed_dsn)

    @app.task
    def later() -> None: ...

    later.using(delay=60).enqueue()
    with pytest.raises(dibs.InvalidArgument, match="has the real one"):
        drain(app, include_scheduled=True)
    app.close()


def test_drain_raises_the_first_failure(app: dibs.App) -> None:
    ran: list[int] = []
    much_later = dibs.Retry(backoff=dibs.constant(600))  # However slow this machine is.

    @app.task(retry=much_later)
    async def divides(n: int) -> float:
        ran.append(n)
        return 1 / n

    @app.task(retry=much_later)
    def divides_too(n: int) -> float:
        ran.append(n)
        return 1 / n

    before = divides.function, divides_too.function
    for task in (divides, divides_too):
        task.enqueue(0)
        with pytest.raises(HandlerFailed, match=r"divides\w* failed: ZeroDivisionError") as caught:
            drain(app, raise_errors=True)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert (
            "divides"
            in [entry.name for entry in pytest.ExceptionInfo.from_exception(caught.value.__cause__).traceback][-1]
        )
    assert (divides.function, divides_too.function) == before
    bad = app.client.enqueue("q", divides.name, {"n": "x"})
    with pytest.raises(HandlerFailed, match=r"failed: [\w.]*InvalidArgument[^\0]*\$\.n"):
        drain(app, raise_errors=True)
    assert app.client.status(bad.id).state == "failed"
    assert ran == [0, 0]


def test_drain_that_takes_too_long_gives_up(app: dibs.App) -> None:
    @app.task
    async def hangs() -> None:
        await asyncio.Event().wait()

    job = hangs.enqueue()
    with pytest.raises(TimeoutError, match="hangs ready in q"):
        drain(app, timeout=0.3)
    assert job.status().state == "ready"


async def test_adrain_shares_the_loop(app: dibs.App) -> None:
    told: asyncio.Queue[int] = asyncio.Queue()

    @app.task
    async def tells(n: int) -> None:
        await told.put(n)

    await tells.aenqueue(5)
    with pytest.raises(dibs.InvalidArgument, match="await adrain"):
        drain(app)
    assert (await adrain(app)).by_state == {"succeeded": 1}
    assert told.get_nowait() == 5
    await app.aclose()


@dataclass
class Order:
    id: int
    at: datetime


def test_assert_enqueued_matches_what_is_given(app: dibs.App) -> None:
    @app.task
    def welcome(user_id: int, lang: str = "en") -> None: ...

    @app.task
    def ship(order: Order, queue: str = "fast") -> None: ...

    order = Order(1, datetime(2026, 1, 2, tzinfo=UTC))
    welcome.using(priority=9, delay=600).enqueue(42)
    welcome.enqueue(43, lang="de")
    ship.using(queue="shipping").enqueue(order)
    app.client.message_queue("raw").send(b"\x00\x01")
    (job,) = assert_enqueued(welcome, 42, lang="en", queue="q", priority=9, delay=600, state="scheduled")
    assert job.payload == {"user_id": 42}
    assert [j.payload["user_id"] for j in assert_enqueued(welcome, count=2)] == [42, 43]
    assert_enqueued(welcome, lang="de", count=1)
    assert_enqueued(welcome, mock.ANY, lang="de")
    assert_enqueued(welcome.call(43, lang="de"), on=app)
    assert_enqueued(ship, order, queue="shipping", arguments={"queue": "fast"})
    assert_enqueued(welcome.name, on=app.client, user_id=42, due_at=job.due_at)
    assert_enqueued("message", on=app, payload=b"\x00\x01")
    refute_enqueued(welcome, 42, lang="de")
    refute_enqueued(welcome, 42, queue="other")
    refute_enqueued(welcome, 42, delay=60)
    refute_enqueued("no.such.kind", on=app)
    for args, kwargs, words in (
        ((welcome, 1, 2, 3), {}, "too many positional"),
        ((welcome,), {"language": "de"}, "unexpected keyword argument 'language'"),
        (("kind",), {}, "give on="),
        (("kind", 1), {"on": app}, "give them by name"),
    ):
        with pytest.raises(dibs.InvalidArgument, match=words):
            assert_enqueued(*args, **kwargs)


def test_assert_enqueued_means_the_options_of_jobs(app: dibs.App) -> None:
    @app.task(name="welcome")
    def welcome(user_id: int, group: str = "vip") -> None: ...

    deadline = datetime(2126, 1, 2, tzinfo=UTC)
    given: dict[str, Any] = {
        "group": "acme", "cost": 3, "resources": {"gpu": 2}, "headers": {"a": 1}, "deadline": deadline,
        "max_attempts": 7, "ttl": timedelta(days=2, seconds=5), "lease": 90, "lease_growth": 1.5, "lease_cap": 600.0,
        "backoff": dibs.exponential(1, cap=86400), "history": "failures",
    }  # fmt: skip
    app.client.limits.set(resource="gpu", concurrency=2)
    welcome.using(**given).enqueue(1)
    app.client.enqueue("q", "raw", b"x", content_type="image/png")
    for name, value in given.items():
        assert_enqueued(welcome, 1, count=1, **{name: value})
    assert_enqueued(welcome, 1, arguments={"group": "vip"}, **given)
    assert_enqueued("raw", on=app, content_type="image/png")
    refute_enqueued(welcome, group="vip")
    refute_enqueued(welcome, ttl=5)
    with pytest.raises(AssertionError, match="its group is 'acme', not 'other'"):
        assert_enqueued(welcome, 1, group="other")
    unkept = dibs.types.JobOptions.__annotations__.keys() - {*READABLE, "priority", "delay", "due_at"}
    assert unkept == {"dedup", "dedup_key", "dedup_scope", "dedup_for", "on_duplicate", "shard_key"}
    for name in unkept:
        with pytest.raises(dibs.InvalidArgument, match=f"the {name} of a job is not kept"):
            assert_enqueued(welcome, 1, **{name: mock.ANY})


def test_schedules_fire_under_virtual_time(app: dibs.App, clock: Clock) -> None:
    seen: list[tuple[str, datetime]] = []

    @app.schedule("0 3 * * *", name="nightly")
    @app.task(name="report")
    def report() -> None:
        seen.append(("report", clock.now()))
        later.using(delay=3600).enqueue()

    @app.schedule(interval=21600)
    @app.task(name="sync")
    def sync() -> None:
        seen.append(("sync", clock.now()))

    @app.task(name="later")
    def later() -> None:
        seen.append(("later", clock.now()))

    clock.freeze(datetime(2026, 3, 1, 12, tzinfo=UTC))
    assert drain(app, schedules=True).by_state == {}, "declared, and not due"
    drained = drain(app, schedules=True, include_scheduled=True, within=timedelta(days=2))
    times = [at for kind, at in seen if kind == "report"]
    assert [(at.day, at.hour) for at in times] == [(2, 3), (3, 3)]
    assert [(at.day, at.hour) for kind, at in seen if kind == "later"] == [(2, 4), (3, 4)]
    assert Counter(kind for kind, _ in seen)["sync"] == 8
    assert (drained.by_state, drained.moved) == ({"succeeded": 12}, 172800)
    clock.move(86400)
    assert drain(app, schedules=True).by_state["succeeded"] >= 2, "what is due now, without moving the clock"
    with pytest.raises(dibs.InvalidArgument, match="go on forever"):
        drain(app, schedules=True, include_scheduled=True)


def test_a_schedule_that_cannot_fire_ends_no_drain(app: dibs.App, clock: Clock) -> None:
    @app.schedule(interval=60)
    @app.task(name="sync", queue="full")
    def sync() -> None: ...

    app.client.queues.set("full", max_depth=1, when_full="refuse")
    app.client.enqueue("full", "of.others")
    drained = drain(app, schedules=True, include_scheduled=True, within=300)
    assert (drained.by_state, drained.moved <= 300) == ({}, True)
    assert app.client.schedules.get("sync").status == "failing"


async def test_a_drain_of_schedules_has_an_end(app: dibs.App) -> None:
    @app.schedule(fixed_delay=1)
    @app.task(name="sync")
    def sync() -> None: ...

    with pytest.raises(TimeoutError):
        await adrain(app, schedules=True, include_scheduled=True, within=10**7, timeout=0.5)
    await app.aclose()


def test_assert_enqueued_shows_what_was_enqueued_instead(app: dibs.App) -> None:
    @app.task(name="shop.welcome")
    def welcome(user_id: int, lang: str = "en") -> None: ...

    @app.task(name="shop.ship")
    def ship(order_id: int) -> None: ...

    with pytest.raises(AssertionError, match="Nothing was enqueued at all"):
        assert_enqueued(welcome, 1)
    welcome.enqueue(41)
    welcome.enqueue(42)
    ship.enqueue(42)
    with pytest.raises(AssertionError) as caught:
        assert_enqueued(welcome, 42, lang="de", queue="q")
    assert str(caught.value) == (
        "shop.welcome(user_id=42, lang='de') queue='q' was not enqueued.\n"
        "The nearest is shop.welcome(user_id=42)  queue=q priority=5 ready\n"
        "  but lang is 'en', not 'de'.\n"
        "Enqueued were 3:\n"
        "  shop.welcome(user_id=41)  queue=q priority=5 ready\n"
        "  shop.welcome(user_id=42)  queue=q priority=5 ready\n"
        "  shop.ship(order_id=42)  queue=q priority=5 ready"
    )
    with pytest.raises(AssertionError, match=r"shop.welcome\(\) was enqueued 2 times, not 1:\n  shop.welcome\(user"):
        assert_enqueued(welcome, count=1)
    with pytest.raises(AssertionError, match=r"but its kind is shop.ship, not shop.shop"):
        assert_enqueued("shop.shop", on=app)
    with pytest.raises(AssertionError, match=r"shop.ship\(order_id=42\) was enqueued once:\n  shop.ship\(order_id=42"):
        refute_enqueued(ship, 42)
    assert_enqueued("never", on=app, count=0)


def test_perform_needs_no_database(app: dibs.App) -> None:
    nowhere = dibs.App("postgresql://nowhere.invalid/x")
    tasks = add_tasks(nowhere)
    for task in (tasks["async"], tasks["plain"]):
        assert perform(task, "returns") == Performed(
            dibs.types.Outcome.SUCCEEDED, {"how": "returns", "at": "2026-01-02T00:00:00Z", "marked": 1}
        )
        final, snoozed, throttled = (perform(task, how) for how in ("final", "snooze", "throttled"))
        assert (final.outcome, final.final, type(final.error)) == ("failed", True, dibs.GiveUp)
        assert (snoozed.outcome, snoozed.delay) == ("snoozed", 900)
        assert (throttled.outcome, throttled.delay, throttled.final) == ("failed", 3600, False)
        assert [job.kind for job in perform(task, "follows").follow_ups] == ["next"]
    with pytest.raises(dibs.InvalidArgument):
        perform(tasks["plain"], 5)

    @nowhere.task(name="last")
    def last() -> tuple[bool, int]:
        return dibs.context().is_last_attempt, dibs.context().job.max_attempts

    assert perform(last).result == (False, DEFAULT_ATTEMPTS)
    assert perform(last.using(max_attempts=1)).result == (True, 1)
    app.client.queues.set("fresh")
    assert {queue.max_attempts for queue in app.client.queues.list()} == {DEFAULT_ATTEMPTS}


def test_an_app_is_pointed_elsewhere_and_back(app: dibs.App, installed_dsn: str) -> None:
    @app.task
    def noop() -> None: ...

    noop.enqueue()
    client = app.client
    with pointed(app, installed_dsn) as there:
        assert there is app
        noop.enqueue()
        noop.enqueue()
        assert app.client.queues.depth("q").ready == 2
        other = app.client
    with pytest.raises(dibs.errors.ClientClosed):
        other.queues.depth("q")
    assert app.client is client
    assert client.queues.depth("q").ready == 1


def test_a_lost_answer_enqueues_nothing_twice(app: dibs.App) -> None:
    """An enqueue whose answer is lost is repeated under the same id."""

    @app.task
    def noop() -> None: ...

    def lose() -> None:
        raise dibs.ConnectionLost("the answer was lost")

    app.client.queues.list()
    with at("database.after_send", lose) as point:
        job = noop.enqueue()
    assert point.passed == 2
    assert job.is_new
    assert_enqueued(noop, count=1)


@pytest.mark.parametrize("dsn", DSNS)
def test_the_dsn_of_another_database(dsn: str) -> None:
    other = psycopg.conninfo.conninfo_to_dict(at_database(dsn, "b c"))
    assert other == {**psycopg.conninfo.conninfo_to_dict(dsn), "dbname": "b c"}
    assert at_database(dsn, "b").startswith("postgresql://") is dsn.startswith("postgresql://")


@pytest.mark.parametrize(
    "dsn",
    ["postgresql://u:p#s@h/db", "postgresql://u:p?s@h:1,i:2/db?sslmode=disable", "postgresql://u@h/db?dbname=z&port=7"],
)
def test_the_dsn_of_another_database_keeps_the_password_and_the_settings(dsn: str) -> None:
    other = psycopg.conninfo.conninfo_to_dict(at_database(dsn, "other"))
    assert other == {**psycopg.conninfo.conninfo_to_dict(dsn), "dbname": "other"}


def test_importing_needs_no_pytest() -> None:
    program = "import sys, dibs.testing; sys.exit('pytest' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": str(SOURCES)})


def test_a_frozen_clock_stops_where_it_was_moved_to(clock: Clock) -> None:
    clock.move(3600)
    before = clock.now()
    clock.freeze()
    assert before <= clock.now() < before + timedelta(seconds=60)


def test_a_clock_that_runs_again_keeps_its_time_in_every_time_zone(clock: Clock, db: psycopg.Connection[Any]) -> None:
    """At least one of these days has another offset from UTC than today."""
    for days in (100, 200, 300):
        at = datetime.now(UTC) + timedelta(days=days)
        clock.freeze(at)
        clock.run()
        for zone in ("UTC", "Europe/Berlin"):
            db.execute("select set_config('TimeZone', %s, false)", (zone,))
            [(now,)] = db.execute("select dibs.now()").fetchall()
            assert at <= now < at + timedelta(seconds=60), (days, zone)


def test_a_payload_without_names_is_compared(app: dibs.App) -> None:
    @app.task(raw=True)
    def takes(payload: Any) -> None: ...

    app.client.enqueue("q", takes.name, "b")
    assert_enqueued(takes.call("b"), on=app)
    assert_enqueued(takes.name, on=app, payload="b", delay=mock.ANY)
    refute_enqueued(takes.call("a"), on=app)
    refute_enqueued(takes.name, on=app, payload=None)
    app.client.enqueue("q", takes.name)
    assert_enqueued(takes.name, on=app, payload=None)
    with pytest.raises(dibs.InvalidArgument, match="has no count"):
        refute_enqueued(takes.name, on=app, count=2)


def test_drain_names_the_exception_of_the_job_that_failed(app: dibs.App) -> None:
    @app.task
    def is_cancelled() -> None:
        app.client.cancel(dibs.context().id)
        raise ValueError("not this one")

    @app.task
    def fails() -> None:
        raise KeyError("this one")

    is_cancelled.enqueue()
    fails.enqueue()
    with pytest.raises(HandlerFailed, match="fails failed: KeyError") as caught:
        drain(app, raise_errors=True)
    assert isinstance(caught.value.__cause__, KeyError)


def test_drain_leaves_a_due_job_that_cannot_be_claimed(app: dibs.App, connect: Connect, clock: Clock) -> None:
    @app.task
    def works() -> None: ...

    works.enqueue()
    works.using(delay=3600).enqueue()
    other = connect()
    other.execute("begin")
    other.execute("select from dibs.ready where due_at <= dibs.now() for update")
    drained = drain(app, include_scheduled=True, timeout=20)
    assert (len(drained.ended), len(drained.left)) == (1, 1)
    other.execute("rollback")
