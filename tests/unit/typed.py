# pyright: strict
"""What type checkers know of tasks and their jobs: mypy and pyright check this file, nothing runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, assert_type

import dibs
from dibs import AsyncJob, Job, NewJob

if TYPE_CHECKING:
    from uuid import UUID

    from dibs.types import BatchTask

app = dibs.App()


@app.task
def plain(order: int, note: str = "") -> str:
    return note * order


@app.task(queue="mail", timeout=60)
def plain_with_options(rows: dict[str, Any]) -> list[int] | None:
    return [len(rows)]


@app.task
async def welcome(user: int, lang: str = "en") -> str:
    return lang * user


@app.task(queue="mail", priority=7)
async def with_options(rows: dict[str, Any]) -> list[int] | None:
    return [len(rows)]


@app.task
async def silent() -> None: ...


@app.task
def untold(order: int) -> Any:
    return order


@app.task
def never(order: int) -> NoReturn:
    raise dibs.GiveUp(str(order))


@app.task(raw=True)
async def raw(payload: Any) -> int:
    return len(payload)


@app.task(raw=True)
def raw_plain(payload: Any) -> int:
    return len(payload)


@app.schedule("0 3 * * *")
async def nightly(day: int = 0) -> bytes:
    return bytes(day)


@app.schedule(interval=60)
def each_minute(day: int = 0) -> float:
    return day


@app.schedule(interval=3600)
@app.task(queue="reports")
async def hourly(day: int = 0) -> float:
    return day


@app.batch(max=10)
async def index(pages: list[str]) -> list[int | Exception]:
    return [len(page) for page in pages]


@app.batch()
def index_plain(pages: list[str]) -> list[int]:
    return [len(page) for page in pages]


@app.batch()
async def index_or_nothing(pages: list[str]) -> list[int] | None:
    return [len(page) for page in pages] or None


@app.batch()
async def index_silently(pages: list[str]) -> None: ...


def sync_code(id: UUID) -> None:
    assert_type(plain(1), str)
    assert_type(plain.call(1, note="x"), NewJob)
    assert_type(plain.enqueue(1, note="x"), Job[str])
    assert_type(plain.enqueue(1).wait(), str)
    assert_type(plain.enqueue(1).result(), str | None)
    assert_type(plain.enqueue_many([plain.call(1)]), Sequence[Job[str]])
    assert_type(plain.using(priority=9).enqueue(1), Job[str])
    assert_type(plain.job(id), Job[str])
    assert_type(plain.ajob(id), AsyncJob[str])
    assert_type(plain_with_options.enqueue({}), Job[list[int] | None])
    assert_type(plain_with_options({}), list[int] | None)

    assert_type(welcome.enqueue(1, lang="de"), Job[str])
    assert_type(welcome.enqueue(1).wait(5), str)
    assert_type(welcome.enqueue(1).result(), str | None)
    assert_type(welcome.enqueue_many(welcome.call(n) for n in range(3)), Sequence[Job[str]])
    assert_type(welcome.enqueue_many([welcome.call(1)])[0].wait(), str)
    assert_type(welcome.using(priority=9, delay=60).enqueue(1), Job[str])
    assert_type(welcome.using(queue="x").call(1), NewJob)
    assert_type(welcome.job(id), Job[str])
    assert_type(welcome.job("x").wait(), str)
    assert_type(welcome.ajob(id), AsyncJob[str])
    assert_type(with_options.enqueue({}), Job[list[int] | None])
    assert_type(with_options.job(id).wait(), list[int] | None)
    assert_type(silent.enqueue(), Job[None])

    assert_type(raw.enqueue({"any": "thing"}), Job[int])
    assert_type(raw.job(id), Job[int])
    assert_type(raw_plain.enqueue([]), Job[int])
    assert_type(raw_plain([]), int)

    assert_type(nightly.enqueue(), Job[bytes])
    assert_type(nightly.using(priority=1).job(id), Job[bytes])
    assert_type(each_minute.enqueue(day=2), Job[float])
    assert_type(each_minute(), float)
    assert_type(hourly.enqueue(), Job[float])

    assert_type(index.enqueue("page"), Job[int])
    assert_type(index.call("page"), NewJob)
    assert_type(index.enqueue_many([index.call("page")]), Sequence[Job[int]])
    assert_type(index.using(priority=9).job(id), Job[int])
    assert_type(index_plain.enqueue("page").wait(), int)
    assert_type(index_plain("page"), Sequence[int | Exception])
    assert_type(index_or_nothing.enqueue("page"), Job[int | None])
    assert_type(index_silently.enqueue("page"), Job[None])


async def async_code(id: UUID) -> None:
    assert_type(await plain.aenqueue(1), AsyncJob[str])
    assert_type(await plain.aenqueue_many([plain.call(1)]), Sequence[AsyncJob[str]])

    assert_type(await welcome(1), str)
    assert_type(await welcome.aenqueue(1, lang="de"), AsyncJob[str])
    assert_type(await (await welcome.aenqueue(1)).wait(), str)
    assert_type(await (await welcome.aenqueue(1)).result(), str | None)
    assert_type(await welcome.aenqueue_many([welcome.call(1)]), Sequence[AsyncJob[str]])
    assert_type(await welcome.using(delay=1).aenqueue(1), AsyncJob[str])
    assert_type(await welcome.ajob(id).wait(), str)
    assert_type(await with_options({}), list[int] | None)

    assert_type(await raw.aenqueue(None), AsyncJob[int])
    assert_type(await nightly.aenqueue(1), AsyncJob[bytes])
    assert_type(await hourly(), float)
    assert_type(await index.aenqueue("page"), AsyncJob[int])
    assert_type(await index.ajob(id).result(), int | None)
    assert_type(await index("page"), Sequence[int | Exception])


def without_a_type(id: UUID) -> None:
    assert_type(untold(1), Any)
    assert_type(untold.job(id).wait(), Any)
    assert_type(never.job(id).wait(), Any)
    assert_type(app.job(id), Job[Any])
    assert_type(app.remote("shop.welcome").enqueue(42), Job[Any])


def of_any_task(task: dibs.Task[..., str], any_task: dibs.Task[..., Any], batch: BatchTask[str, int, Any]) -> None:
    assert_type(task.enqueue(1), Job[str])
    assert_type(any_task.enqueue(1, x=2), Job[Any])
    assert_type(batch.enqueue("x"), Job[int])


of_any_task(plain, welcome, index)
of_any_task(welcome, index, index_plain)
