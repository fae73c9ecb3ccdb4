"""Workers that meet kinds they do not run: rolling deploys, and several workers with different tasks on one queue."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

import dibs
from dibs.worker import Worker, WorkerSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    import psycopg


class Shop:
    """An app with tasks of these kinds, and which of them ran."""

    def __init__(self, dsn: str, *kinds: str) -> None:
        self.app = dibs.App(dsn, queue="q")
        self.ran: list[str] = []
        for kind in kinds:
            self._add(kind)

    def _add(self, kind: str) -> None:
        @self.app.task(name=kind)
        async def note() -> None:
            self.ran.append(kind)

    async def drain(self) -> None:
        """Work until nothing is left to do."""
        async with asyncio.timeout(60):
            await Worker(self.app, WorkerSettings(["q"], drain=True, upkeep=False)).run()

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Work while the block lasts."""
        worker = Worker(self.app, WorkerSettings(["q"], upkeep=False))
        working = asyncio.create_task(worker.run())
        try:
            async with asyncio.timeout(60):
                yield
        finally:
            worker.stop()
            await working


@pytest.fixture
def shop(dsn: str) -> Iterator[Callable[..., Shop]]:
    made: list[Shop] = []

    def make(*kinds: str) -> Shop:
        made.append(Shop(dsn, *kinds))
        return made[-1]

    yield make
    for one in made:
        one.app.close()


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - the database tells
        await asyncio.sleep(0.02)


async def test_a_kind_that_nobody_runs_waits_aside_until_a_worker_comes_that_does(
    shop: Callable[..., Shop], client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    old, new = shop("old"), shop("old", "new")
    job = client.enqueue("q", "new")
    async with old.working():
        await until(lambda: client.status(job.id).state == "blocked")
        assert "no live worker of queue 'q' runs kind 'new'" in client.why(job.id)
        async with new.working():
            await until(lambda: client.status(job.id).state == "succeeded")
    assert new.ran == ["new"]
    assert db.execute("select outcome::text from dibs.attempts").fetchall() == [("succeeded",)]


async def test_a_worker_that_drains_takes_what_others_left(shop: Callable[..., Shop], client: dibs.Client) -> None:
    client.enqueue_many(dibs.NewJob(queue="q", kind="new") for _ in range(300))
    await shop("old").drain()
    assert client.queues.depth("q").blocked == 300
    await (new := shop("new")).drain()
    assert new.ran == ["new"] * 300


async def test_workers_with_different_tasks_share_a_queue(
    shop: Callable[..., Shop], client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    one, other = shop("a"), shop("b")
    async with one.working(), other.working():
        for _ in range(5):
            made = client.enqueue_many(dibs.NewJob(queue="q", kind=kind) for kind in "ab" * 50)
            ids = [job.id for job in made]
            await until(lambda ids=ids: {s.state for s in client.status_many(ids)} == {"succeeded"})  # type: ignore[misc]
    assert (one.ran, other.ran) == (["a"] * 250, ["b"] * 250)
    assert db.execute("select count(*) from dibs.attempts").fetchall() == [(500,)]


async def test_a_worker_says_which_kinds_it_runs(shop: Callable[..., Shop], client: dibs.Client) -> None:
    async with shop("b", "a").working():
        await until(client.workers.list)
        assert [worker.kinds for worker in client.workers.list()] == [["a", "b"]]
