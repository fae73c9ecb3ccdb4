"""An app's tasks: how they are made, and how hooks and options change their jobs."""

from __future__ import annotations

import asyncio
import functools
import gc
import re
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

import dibs
from dibs.client.task import REPEATED_KEY
from dibs.events import JobEnqueued
from dibs.job import Enqueued, NewJob
from dibs.states import Answer
from dibs.testing import adrain
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    import psycopg

    Proceed = Callable[[Sequence[NewJob]], Sequence[Enqueued]]
    AsyncProceed = Callable[[Sequence[NewJob]], Awaitable[Sequence[Enqueued]]]


OPEN = "select count(*) from pg_stat_activity where datname = current_database()"


@pytest.fixture
def app(dsn: str) -> Iterator[dibs.App]:
    app = dibs.App(dsn, queue="q")
    yield app
    app.close()


def number() -> int:
    return 1


def text() -> str:
    return "x"


# Making tasks


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda app: app.task(number).using(timeout=5), r"app\.task\(timeout=…\)"),
        (lambda app: app.task(number).using(retry=dibs.Retry()), r"app\.task\(retry=…\)"),
        (lambda app: app.task(conn=object()), r"\.using\(conn=…\)"),
        (lambda app: app.task(priorityy=1), "did you mean 'priority'"),
        (lambda app: app.batch(number), r"@app\.batch\(\)"),
        (lambda app: app.remote("k").using(priorityy=1), "did you mean 'priority'"),
        (lambda app: app.remote("k").using(timeout=1), r"app\.task\(timeout=…\)"),
    ],
)
def test_a_refused_option_comes_with_the_right_way(app: dibs.App, make: Callable[[Any], Any], hint: str) -> None:
    with pytest.raises(dibs.InvalidArgument) as refused:
        make(app)
    assert refused.value.hint is not None
    assert re.search(hint, refused.value.hint)


def test_a_rate_that_is_too_high_is_refused_with_the_bounds(app: dibs.App) -> None:
    with pytest.raises(dibs.InvalidArgument, match="to 1000000"):
        app.task(rate=2_000_000.0)


def test_a_script_names_a_wrapped_function_by_its_own_file(app: dibs.App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decorator lives in another module, as that of a retry library does."""
    library = ModuleType("library")
    library.__dict__.update(functools=functools, __file__="/lib/library.py")
    exec(
        "def wrapped(f):\n    @functools.wraps(f)\n    def call():\n        return f()\n    return call",
        library.__dict__,
    )
    script = ModuleType("__main__")
    script.__dict__.update(__file__="/srv/shop.py", wrapped=library.wrapped)
    monkeypatch.setitem(sys.modules, "library", library)
    exec("@wrapped\ndef send(): ...", script.__dict__)
    assert app.task(script.send).name == "shop.send"


def test_attributes_of_a_function_do_not_become_settings_of_its_task(app: dibs.App) -> None:
    def send() -> None: ...

    send.settings, send.name, send.note = 1, "other", "kept"  # type: ignore[attr-defined]
    task: Any = app.task(send)
    assert (task.settings.queue, task.note) == ("q", "kept")
    assert task.name.endswith(".send")
    other = dibs.App(app.dsn, queue="elsewhere")
    again = other.task(task)
    assert (again.app, again.settings.queue, again.call().queue) == (other, "elsewhere", "elsewhere")


async def test_a_task_of_one_app_becomes_the_same_kind_of_task_in_another(app: dibs.App) -> None:
    @app.task(name="first")
    async def work() -> int:
        return 7

    other = dibs.App(app.dsn, queue="elsewhere")
    assert await other.task(work)() == 7
    [again] = other.tasks.values()
    assert again.is_async


# Hooks


class DropFirst(dibs.Middleware):
    def enqueue(self, jobs: Sequence[NewJob], proceed: Proceed) -> Sequence[Enqueued]:
        return proceed(jobs[1:])


class Backwards(dibs.Middleware):
    def enqueue(self, jobs: Sequence[NewJob], proceed: Proceed) -> Sequence[Enqueued]:
        return [proceed([job])[0] for job in reversed(jobs)]


class Sorted(dibs.Middleware):
    """Sends the jobs in another order than it answers for them."""

    def enqueue(self, jobs: Sequence[NewJob], proceed: Proceed) -> Sequence[Enqueued]:
        return list(reversed([proceed([job])[0] for job in reversed(jobs)]))


class Reroute(dibs.Middleware):
    async def aenqueue(self, jobs: Sequence[NewJob], proceed: AsyncProceed) -> Sequence[Enqueued]:
        return await proceed([NewJob(queue="other", kind=job.kind) for job in jobs])


class Nothing(dibs.Middleware):
    def enqueue(self, jobs: Sequence[NewJob], proceed: Proceed) -> Sequence[Enqueued]:  # noqa: ARG002
        return []

    async def aenqueue(self, jobs: Sequence[NewJob], proceed: AsyncProceed) -> Sequence[Enqueued]:  # noqa: ARG002
        return []


class NotAgain(dibs.Middleware):
    """Answers for a job that it does not enqueue."""

    def enqueue(self, jobs: Sequence[NewJob], proceed: Proceed) -> Sequence[Enqueued]:
        [made] = proceed(jobs[1:])
        return [Enqueued(uuid4(), Answer.DUPLICATE), made]


@pytest.mark.parametrize(
    ("middleware", "types", "told"),
    [
        (DropFirst(), [str], ["text"]),
        (Backwards(), [str, int], ["text", "number"]),
        (Sorted(), [int, str], ["text", "number"]),
        (NotAgain(), [Any, str], ["text"]),
    ],
)
def test_a_hook_may_change_which_jobs_are_sent(
    app: dibs.App, middleware: dibs.Middleware, types: list[Any], told: list[str]
) -> None:
    """The handles know the result types of the jobs that were sent, and the events tell of those."""
    first, second = app.task(name="number")(number), app.task(name="text")(text)
    events: list[JobEnqueued] = []
    app.on(JobEnqueued)(events.append)
    app.add_middleware(middleware)
    jobs = app.enqueue_many([first.call(), second.call()])
    assert [job.returns for job in jobs] == types
    assert [event.kind for event in events] == told
    assert [app.client.show(event.id)["kind"] for event in events] == told  # type: ignore[index]


async def test_a_job_that_a_hook_sent_elsewhere_is_told_as_sent(app: dibs.App) -> None:
    events: list[JobEnqueued] = []
    app.on(JobEnqueued)(events.append)
    app.add_middleware(Reroute())
    await app.task(name="number")(number).aenqueue()
    assert [event.queue for event in events] == ["other"]
    await app.aclose()


async def test_an_enqueue_whose_job_a_hook_dropped_says_so(app: dibs.App) -> None:
    task = app.task(number)
    app.add_middleware(Nothing())
    with pytest.raises(dibs.DibsError, match="a middleware"):
        task.enqueue()
    with pytest.raises(dibs.DibsError, match="a middleware"):
        await task.aenqueue()
    assert list(task.enqueue_many([task.call()])) == []
    await app.aclose()


# Options


@pytest.mark.parametrize("key_last", [True, False])
def test_repeats_of_a_job_with_its_own_headers_keep_their_key(app: dibs.App, key_last: bool) -> None:
    task = app.task(repeat=60, name="number")(number)
    by_key, by_header = task.using(dedup_key="k"), task.using(headers={"tenant": "a"})
    inner, outer = (by_header, by_key) if key_last else (by_key, by_header)
    outer.enqueue_many([inner.call()])
    [job] = app.client.claim("q")
    assert job.headers == {"tenant": "a", REPEATED_KEY: "k"}


async def test_a_remote_raw_task_gets_its_payload_as_it_is(app: dibs.App) -> None:
    seen: list[Any] = []

    @app.task(name="raw", raw=True)
    def raw(payload: Any = None) -> None:
        seen.append(payload)

    app.client._run(dibs.db.calls.workers.set_tasks([raw.facts()]))
    await app.remote("raw").aenqueue({"a": 1})
    await app.remote("raw").aenqueue(payload=[2])
    with pytest.raises(dibs.InvalidArgument, match="2 arguments given"):
        await app.remote("raw").aenqueue(1, 2)
    with pytest.raises(dibs.InvalidArgument, match="argument 'payload' is missing"):
        await app.remote("raw").aenqueue()
    await adrain(app)
    assert seen == [{"a": 1}, [2]]
    await app.aclose()


def test_a_remote_task_that_repeats_keeps_the_key_of_using(app: dibs.App) -> None:
    task = app.task(repeat=60, name="number", dedup_key="usual", headers={"tenant": "a"})(number)
    app.client._run(dibs.db.calls.workers.set_tasks([task.facts()]))
    remote = app.remote("number")
    remote.enqueue()
    remote.using(dedup_key="other").enqueue()
    remote.using(dedup_key="third", headers={"tenant": "b"}).enqueue()
    headers = [job.headers for job in app.client.claim("q", 3)]
    assert headers == [
        {"tenant": "a", REPEATED_KEY: "usual"},
        {"tenant": "a", REPEATED_KEY: "other"},
        {"tenant": "b", REPEATED_KEY: "third"},
    ]


@pytest.mark.parametrize("options", [{}, {"name": "named"}, {"name": "named", "raw": True}])
def test_a_callable_that_is_no_function_is_refused_as_a_task(app: dibs.App, options: Any) -> None:
    with pytest.raises(dibs.InvalidArgument, match="a task is a function"):
        app.task(**options)(functools.partial(number))
    with pytest.raises(dibs.InvalidArgument, match="a task is a function"):
        app.batch()(functools.partial(number))  # type: ignore[arg-type]
    assert not app.tasks


def test_clients_of_event_loops_that_were_closed_keep_no_connection(app: dibs.App, db: psycopg.Connection[Any]) -> None:
    task = app.task(number)
    [(before,)] = db.execute(OPEN).fetchall()
    for _ in range(4):
        asyncio.run(task.aenqueue())
    gc.collect()
    wait_until(lambda: db.execute(OPEN).fetchall()[0][0] <= before + 1, what="the end of the connections")
    asyncio.run(app.aclose())


class TryAgain(dibs.Middleware):
    def enqueue(self, jobs: Sequence[NewJob], proceed: Proceed) -> Sequence[Enqueued]:
        try:
            return proceed([NewJob(queue="", kind="k")])
        except dibs.DibsError:
            return proceed(jobs)


def test_a_hook_may_try_again_after_an_error(app: dibs.App) -> None:
    events: list[JobEnqueued] = []
    app.on(JobEnqueued)(events.append)
    app.add_middleware(TryAgain())
    job = app.task(name="number")(number).enqueue()
    assert job.returns is int
    assert [event.id for event in events] == [job.id]
