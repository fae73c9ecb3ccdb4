"""A handler is told to stop before it is stopped: plain functions and processes can be told in no other way."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import dibs
from dibs.testing import perform
from dibs.worker import Worker, WorkerSettings, runners
from tests.integration import shop
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONG = 20.0


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
    shop.app.__dict__.pop("client", None)


class Running:
    """A worker in the background, and the attempt that a handler says it has begun."""

    def __init__(self, app: dibs.App, **settings: Any) -> None:
        self.worker = Worker(app, WorkerSettings(("q",), **{"drain": True, "upkeep": False, **settings}))
        self.began = threading.Event()

    async def __aenter__(self) -> Running:
        self._task = asyncio.create_task(self.worker.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        async with asyncio.timeout(30):
            await self._task

    async def has_begun(self) -> None:
        assert await asyncio.to_thread(self.began.wait, 20)


def until_told(began: Callable[[], object]) -> str:
    """What a polite handler does: it looks now and then, and says why it stopped."""
    here = dibs.context()
    began()
    until = time.monotonic() + LONG
    while not here.should_stop and time.monotonic() < until:
        threading.Event().wait(0.01)
    return str(here.stop_reason)


async def looked() -> str:
    """The same in async code."""
    here = dibs.context()
    while not here.should_stop:  # noqa: ASYNC110 - that is how to look
        await asyncio.sleep(0.01)
    return str(here.stop_reason)


async def test_a_plain_function_is_told_of_its_cancellation(app: dibs.App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it still succeeds the job ends as cancelled, and it ends when the function does."""
    monkeypatch.setattr(runners, "BREAK_OFF_AFTER", LONG)
    ended = threading.Event()

    @app.task
    def gives_up() -> None:
        until_told(running.began.set)
        ended.set()
        raise RuntimeError("stopped")

    job = gives_up.enqueue()
    async with Running(app) as running:
        await running.has_begun()
        assert await asyncio.to_thread(job.cancel) == "requested"
    assert ended.is_set()
    assert job.status().state is dibs.State.CANCELLED


async def test_a_plain_function_that_does_not_look_is_left_behind(
    app: dibs.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "BREAK_OFF_AFTER", 0.2)
    go, told = threading.Event(), list[bool]()

    @app.task
    def stubborn() -> None:
        here = dibs.context()
        running.began.set()
        go.wait(LONG)
        told.append(here.should_stop)

    job = stubborn.enqueue()
    async with Running(app) as running:
        await running.has_begun()
        assert await asyncio.to_thread(job.cancel) == "requested"
    assert job.status().state is dibs.State.CANCELLED
    go.set()
    await asyncio.to_thread(wait_until, lambda: told == [True], what="the thread ended, and still knew that it should")


async def test_a_process_that_does_not_look_is_killed(shop_app: dibs.App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "BREAK_OFF_AFTER", 0.2)
    job = shop.sleeps.enqueue()
    async with Running(shop_app, pool=1):
        await asyncio.to_thread(wait_for_state, job, dibs.State.RUNNING)
        assert await asyncio.to_thread(job.cancel) == "requested"
    assert job.status().state is dibs.State.CANCELLED


async def test_a_worker_that_stops_does_not_wait_for_a_cancelled_function(
    app: dibs.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "BREAK_OFF_AFTER", LONG)
    monkeypatch.setattr(runners, "LEAVE_BEHIND_AFTER", LONG)
    go = threading.Event()

    @app.task
    def stubborn() -> None:
        running.began.set()
        go.wait(LONG)

    job = stubborn.enqueue()
    async with Running(app, grace=0) as running:
        await running.has_begun()
        assert await asyncio.to_thread(job.cancel) == "requested"
        began = time.monotonic()
        running.worker.stop()
    assert time.monotonic() - began < LONG
    assert job.status().state is dibs.State.CANCELLED
    go.set()


async def test_a_job_cancelled_while_it_waits_for_a_thread_is_never_run(app: dibs.App) -> None:
    ran = []

    @app.task
    def takes_turns(n: int) -> None:
        ran.append(n)
        until_told(running.began.set)

    first, second = takes_turns.enqueue(1), takes_turns.enqueue(2)
    async with Running(app, threads=1) as running:
        await running.has_begun()
        await asyncio.to_thread(second.cancel)
        await asyncio.to_thread(wait_for_state, second, dibs.State.CANCELLED)
        await asyncio.to_thread(first.cancel)
    assert ran == [1]


def wait_for_state(job: dibs.Job[Any], state: dibs.State) -> None:
    wait_until(lambda: job.status().state is state, what=f"it is {state}")


async def test_a_worker_that_stops_says_so_at_once(app: dibs.App) -> None:
    """A handler may give its job back at the beginning of the grace time, uncharged; async ones can look, too."""

    @app.task
    def plain() -> None:
        assert until_told(running.began.set) == "stopping"
        raise dibs.Snooze(0)

    @app.task
    async def looks() -> str:
        return await looked()

    jobs = [plain.enqueue(), looks.enqueue()]
    async with Running(app, drain=False, grace=LONG) as running:
        await running.has_begun()
        running.worker.stop()
    assert [job.status().state for job in jobs] == ["ready", "succeeded"]
    assert jobs[1].result() == "stopping"
    shown = app.client.show(jobs[0].id) or {}
    assert shown["attempts"][0]["outcome"] == "snoozed"


async def test_a_soft_timeout_is_told_before_the_hard_one(app: dibs.App) -> None:
    @app.task(timeout=LONG, soft_timeout=0.1)
    def plain() -> str:
        return until_told(lambda: None)

    @app.task(soft_timeout=0.1)
    async def looks() -> str:
        return await looked()

    @app.batch(max=2, within=0.01, soft_timeout=0.1)
    async def together(items: list[int]) -> list[str]:
        await looked()
        return [str(one.stop_reason) for one in dibs.context().batch]

    @app.task(soft_timeout=LONG)
    def quick() -> bool:
        return dibs.context().should_stop

    jobs = [plain.enqueue(), looks.enqueue(), together.enqueue(1), together.enqueue(2), quick.enqueue()]
    async with Running(app):
        pass
    assert [job.result() for job in jobs] == ["timeout"] * 4 + [False]


async def test_a_thread_past_its_timeout_can_see_that_it_should_stop(app: dibs.App) -> None:
    told: list[str] = []

    @app.task(timeout=0.1, retry=dibs.Retry(max_attempts=1))
    def plain() -> None:
        told.append(until_told(lambda: None))

    job = plain.enqueue()
    async with Running(app):
        pass
    assert job.status().state is dibs.State.EXHAUSTED
    await asyncio.to_thread(wait_until, lambda: told == ["timeout"], what="the thread ended")


async def test_a_separate_process_is_told_too(shop_app: dibs.App) -> None:
    """Of its soft timeout and of a cancellation, also while it starts; the next job of that process is not meant."""
    soft, asked, next_one = shop.softly.enqueue(), shop.until_told.enqueue(), shop.should_stop.enqueue()
    async with Running(shop_app, pool=1):
        await asyncio.to_thread(soft.wait, 20)
        await asyncio.to_thread(wait_for_state, asked, dibs.State.RUNNING)
        await asyncio.to_thread(asked.cancel)
    assert soft.result() == "timeout"
    assert asked.result() == "cancelled"  # It returned, so it succeeded after all.
    assert next_one.result() is False


def test_perform_knows_the_soft_timeout(app: dibs.App) -> None:
    @app.task(soft_timeout=0.05)
    def plain() -> str:
        return until_told(lambda: None)

    assert perform(plain).result == "timeout"


def test_a_soft_timeout_comes_before_the_hard_one(app: dibs.App) -> None:
    for timeout, soft_timeout in ((5, 5), (None, -1)):
        with pytest.raises(dibs.InvalidArgument, match="soft_timeout"):
            app.task(timeout=timeout, soft_timeout=soft_timeout)(lambda: None)
