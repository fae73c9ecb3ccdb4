"""``dibs top``: what its page shows, and what its keys do."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from textual.widgets import DataTable, Static

import dibs
from dibs.cli.top.page import Page
from dibs.cli.top.screens import JobScreen, Question
from dibs.cli.top.snapshot import Snapshot, read_snapshot
from dibs.cli.top.views import order
from dibs.client.bounded import BoundedClient
from dibs.states import State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from textual.pilot import Pilot

    from dibs.client.client_async import AsyncClient

pytestmark = pytest.mark.once

NEVER = 3600.0
"""Between two looks: a test looks when it wants to."""


@asynccontextmanager
async def page(dsn: str, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Pilot[None]]:
    """The page, as a test drives it."""
    async with BoundedClient(dsn, timeout=5, read_only=False) as client:
        app = Page(client, "shop", NEVER)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.seen is not None)
            yield pilot


async def until(pilot: Pilot[None], fact: Callable[[], object]) -> None:
    """Wait for a fact."""
    async with asyncio.timeout(20):
        while not fact():
            await pilot.pause(0.02)


def rows(pilot: Pilot[None]) -> list[list[str]]:
    """What stands in the table."""
    table = pilot.app.screen_stack[0].query_one(DataTable)
    return [[str(cell) for cell in table.get_row_at(n)] for n in range(table.row_count)]


def shown(pilot: Pilot[None], where: str) -> str:
    """What a part of the screen says."""
    screen = pilot.app.screen if where == "#job" else pilot.app.screen_stack[0]
    return str(screen.query_one(where, Static).content)


async def look(pilot: Pilot[None]) -> None:
    """Snapshot again."""
    app = pilot.app
    assert isinstance(app, Page)
    before = app.seen
    app.refresh_data()
    await until(pilot, lambda: app.seen is not before)
    await pilot.pause()


def fill(client: dibs.Client) -> dict[str, dibs.types.Enqueued]:
    """A job that runs, one that is dead, some that wait."""
    client.queues.set("mail", max_attempts=1)
    jobs = {name: client.enqueue("mail", name) for name in ("sends", "broken")}
    for held in client.claim("mail", 2):
        if held.kind == "broken":
            client.fail(held, "no such [b]host[/b] \x1b[31m\nmore")
        else:
            client.progress(held, 3, 10, message="resizing")
    for _ in range(3):
        client.enqueue("reports", "monthly")
    return jobs


async def test_the_tables(client: dibs.Client, dsn: str) -> None:
    jobs = fill(client)
    async with page(dsn) as pilot:
        assert "shop · 3 ready · 1 running · 1 dead" in shown(pilot, "#summary")
        assert [row[:6] for row in rows(pilot)] == [
            ["mail", "0", "0", "0", "1", "1"],
            ["reports", "3", "0", "0", "0", "0"],
        ]
        await pilot.press("2")
        [[kind, _, progress, id, _, message]] = rows(pilot)
        assert (kind, progress, id, message) == ("sends", "██░░░░░░ 30%", str(jobs["sends"].id), "resizing")
        await pilot.press("4")
        assert rows(pilot)[0][1:] == ["broken", "exhausted", "no such [b]host[/b] \\x1b[31m"]
        await pilot.press("3")
        assert rows(pilot) == []


async def test_sorting_and_filtering(client: dibs.Client, dsn: str) -> None:
    for name, count in (("a", 1), ("b", 3), ("c", 2)):
        client.enqueue_many(dibs.NewJob(queue=name, kind="k") for _ in range(count))
    async with page(dsn) as pilot:
        await pilot.press("s", "s")
        assert [row[0] for row in rows(pilot)] == ["b", "c", "a"]
        await pilot.press("slash", "c", "enter")
        assert [row[0] for row in rows(pilot)] == ["c"]


async def test_missing_numbers_come_last(client: dibs.Client, dsn: str) -> None:
    client.queues.set("empty")
    client.enqueue("full", "k")
    async with page(dsn) as pilot:
        await pilot.press(*"sssssss")
        assert [row[0] for row in rows(pilot)] == ["full", "empty"]


def test_zero_seconds_can_be_sorted() -> None:
    spans = [timedelta(1), timedelta(0)]
    assert sorted(spans, key=order) == [timedelta(0), timedelta(1)]


async def test_a_read_may_take_longer_than_the_time_between_two(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def slowly(client: AsyncClient) -> Snapshot:
        await asyncio.sleep(20 * every)
        return await read_snapshot(client)

    every = 0.02
    monkeypatch.setattr("dibs.cli.top.page.read_snapshot", slowly)
    async with BoundedClient(dsn, timeout=5, read_only=False) as client:
        app = Page(client, "shop", every)
        async with app.run_test() as pilot:
            await until(pilot, lambda: app.seen is not None)


async def test_a_running_job_is_not_run_again(client: dibs.Client, dsn: str) -> None:
    fill(client)
    async with page(dsn) as pilot:
        await pilot.press("2", "r")
        await until(pilot, lambda: isinstance(pilot.app.screen, Question))
        await pilot.press("y")
        await until(pilot, lambda: any("only a dead job" in str(n.message) for n in pilot.app._notifications))


async def test_a_job_is_looked_at_and_run_again(client: dibs.Client, dsn: str) -> None:
    dead = fill(client)["broken"].id
    async with page(dsn) as pilot:
        await pilot.press("4", "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, JobScreen) and "no such" in shown(pilot, "#job"))
        await pilot.press("r")
        await until(pilot, lambda: isinstance(pilot.app.screen, Question))
        await pilot.press("n")
        assert client.status(dead).state is State.EXHAUSTED, "asked first"
        await pilot.press("r")
        await until(pilot, lambda: isinstance(pilot.app.screen, Question))
        await pilot.press("y")
        await until(pilot, lambda: client.status(dead).state is State.READY)
        await pilot.press("escape")
        assert not isinstance(pilot.app.screen, JobScreen)


async def test_a_queue_is_paused_and_a_job_cancelled(client: dibs.Client, dsn: str) -> None:
    running = fill(client)["sends"].id
    async with page(dsn) as pilot:
        await pilot.press("p")
        await until(pilot, lambda: isinstance(pilot.app.screen, Question))
        await pilot.press("y")
        await until(pilot, lambda: client.queues.depth("mail").paused)
        await look(pilot)
        assert rows(pilot)[0][0] == "mail (paused)"
        await pilot.press("2", "c")
        await until(pilot, lambda: isinstance(pilot.app.screen, Question))
        await pilot.press("y")
        await until(pilot, lambda: client.show(running)["cancel_requested"])  # type: ignore[index]


async def test_a_database_that_is_away_is_said_and_looked_for_again(client: dibs.Client, dsn: str) -> None:
    client.enqueue("mail", "k")
    async with page(dsn) as pilot:
        app = pilot.app
        assert isinstance(app, Page)
        there, app.client = (
            app.client,
            BoundedClient("postgresql://127.0.0.1:1/x", timeout=1, read_only=False, patience=0.1),
        )
        app.refresh_data()
        await until(pilot, lambda: "cannot be reached" in shown(pilot, "#summary"))
        assert rows(pilot), "what was seen last stays"
        await app.client.close()
        app.client = there
        await look(pilot)
        assert "1 ready" in shown(pilot, "#summary")


def test_it_needs_a_terminal() -> None:
    done = subprocess.run([sys.executable, "-m", "dibs", "top"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "needs a terminal" in done.stderr


def test_it_runs_in_a_real_terminal_of_80_columns_without_colour(client: dibs.Client, dsn: str) -> None:
    fill(client)
    leader, follower = pty.openpty()
    env = {**os.environ, "DIBS_DSN": dsn, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "80", "LINES": "24"}
    with subprocess.Popen(
        [sys.executable, "-m", "dibs", "top"], stdin=follower, stdout=follower, stderr=follower, env=env
    ) as process:
        os.close(follower)
        told = b""
        while b"reports" not in told:
            told += os.read(leader, 65536)
        os.write(leader, b"q")
        while process.poll() is None:
            try:
                os.read(leader, 65536)
            except OSError:
                break
        assert process.wait(20) == 0
    os.close(leader)
