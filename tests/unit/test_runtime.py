"""The skeleton of every loop, without a clock: the waiter is a fake that the test steers."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from dibs.runtime import Backoff, Loop, Service, Step, StepDone, StepFailed, end, ending, running
from dibs.runtime.http import Page, Pages
from dibs.runtime.wake import wait_for

pytestmark = pytest.mark.once


class Naps:
    """A waiter that returns at once and remembers; it stops its loop after the last nap."""

    def __init__(self, last: int) -> None:
        self.taken: list[float] = []
        self.loop: Loop | None = None
        self._last = last

    async def __call__(self, _: asyncio.Event, seconds: float) -> None:
        self.taken.append(seconds)
        if len(self.taken) >= self._last and self.loop:
            self.loop.stop()
        await asyncio.sleep(0)


class Facts:
    def __init__(self) -> None:
        self.all: list[StepDone | StepFailed] = []

    def __call__(self, fact: StepDone | StepFailed) -> None:
        self.all.append(fact)


async def test_a_loop_sleeps_as_long_as_its_step_says() -> None:
    answers = iter([5.0, 0.5, 7.0])

    async def step() -> float:
        return next(answers)

    naps = Naps(3)
    naps.loop = Loop("count", step, wait=naps)
    await naps.loop.run()
    assert naps.taken == [5.0, 0.5, 7.0]


async def test_a_loop_survives_errors_and_sleeps_longer_after_each() -> None:
    fails = iter([True, True, True, False, True])

    async def step() -> float:
        if next(fails):
            raise RuntimeError("no luck")
        return 60.0

    naps, facts = Naps(5), Facts()
    naps.loop = Loop("luckless", step, wait=naps, listener=facts, backoff=Backoff(first=1.0, longest=3.0))
    await naps.loop.run()
    first, second, third, healthy, again = naps.taken
    assert 0.5 <= first <= 1.0 <= second <= 2.0
    assert 1.5 <= third <= 3.0
    assert healthy == 60.0
    assert again <= 1.0
    assert [fact.failures for fact in facts.all if isinstance(fact, StepFailed)] == [1, 2, 3, 1]
    assert [fact.after_failures for fact in facts.all if isinstance(fact, StepDone)] == [3]


def test_no_delay_overflows_however_often_it_failed() -> None:
    assert Backoff(first=0.5, longest=30.0).delay(100_000) <= 30.0


async def test_a_sleeping_loop_can_be_woken_and_stopped() -> None:
    stepped = asyncio.Queue[int]()

    async def step() -> float:
        stepped.put_nowait(1)
        return 3600.0

    loop = Loop("sleeper", step)
    running = asyncio.create_task(loop.run())
    await stepped.get()
    loop.wake()
    await stepped.get()
    loop.stop()
    await running
    assert stepped.empty()


async def test_a_wake_during_a_step_skips_the_next_sleep() -> None:
    steps = 0

    async def step() -> float:
        nonlocal steps
        steps += 1
        if steps == 1:
            loop.wake()
        else:
            loop.stop()
        return 3600.0

    loop = Loop("eager", step)
    await loop.run()
    assert steps == 2


async def test_a_wait_ends_by_itself() -> None:
    await wait_for(asyncio.Event(), 0.001)


async def test_a_service_starts_and_stops_its_loops_together() -> None:
    started, stop = asyncio.Queue[str](), asyncio.Event()

    def loop(name: str) -> Loop:
        async def step() -> float:
            started.put_nowait(name)
            return 3600.0

        return Loop(name, step)

    running = asyncio.create_task(Service([loop("a"), loop("b")]).run(stop))
    assert {await started.get(), await started.get()} == {"a", "b"}
    stop.set()
    await running


async def test_a_step_that_does_not_end_in_time_is_cancelled() -> None:
    began, stop = asyncio.Event(), asyncio.Event()
    cancelled = False

    async def step() -> float:
        nonlocal cancelled
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled = True
            raise
        return 0.0

    running = asyncio.create_task(Service([Loop("stuck", step)], grace=0.01).run(stop))
    await began.wait()
    stop.set()
    await running
    assert cancelled


async def test_a_loop_that_breaks_stops_the_others_and_says_why() -> None:
    async def step() -> float:
        return 3600.0

    def broken(_: object) -> None:
        raise ValueError("a listener with a defect")

    service = Service([Loop("fine", step), Loop("broken", step, listener=broken)])
    with pytest.raises(ValueError, match="a defect"):
        await service.run(asyncio.Event())


async def test_a_cancelled_service_leaves_no_loop_behind() -> None:
    began = asyncio.Event()

    async def step() -> float:
        began.set()
        return 3600.0

    running = asyncio.create_task(Service([Loop("a", step)]).run(asyncio.Event()))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [task.get_name() for task in asyncio.all_tasks()].count("a") == 0


def swallow(began: asyncio.Event) -> Step:
    """A step that loses its first cancellation, as asyncio.wait_for may before Python 3.12."""

    async def step() -> float:
        began.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return 3600.0

    return step


async def test_a_service_ends_when_a_step_swallows_its_cancellation() -> None:
    began = asyncio.Event()
    running = asyncio.create_task(Service([Loop("a", swallow(began))]).run(asyncio.Event()))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_task_that_swallows_its_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "CANCEL_EVERY", 0.01)
    began = asyncio.Event()
    loop = asyncio.create_task(Loop("a", swallow(began)).run())
    await began.wait()
    await end([loop])
    assert loop.cancelled()


async def test_what_ended_tasks_raised_is_dropped() -> None:
    async def broken() -> None:
        raise ValueError("a defect")

    await end([asyncio.create_task(broken())])
    await end([])


async def test_a_head_request_gets_no_body_and_pages_close_though_they_never_opened() -> None:
    pages = Pages({"/live": lambda: Page("ok\n")})
    await pages.open(0)
    answers = []
    for method in ("GET", "HEAD"):
        reader, writer = await asyncio.open_connection("127.0.0.1", pages.port)
        writer.write(f"{method} /live HTTP/1.1\r\n\r\n".encode())
        answers.append(await reader.read())
        writer.close()
    await pages.close()
    assert answers[0] == answers[1] + b"ok\n"
    assert b"Content-Length: 3\r\n" in answers[1]
    await Pages({}).close()


def test_a_cancellation_that_is_no_ctrl_c_stays_one() -> None:
    async def main() -> None:
        inner = asyncio.create_task(asyncio.sleep(60))
        inner.cancel()
        await inner

    with pytest.raises(asyncio.CancelledError):
        running.run(main())
