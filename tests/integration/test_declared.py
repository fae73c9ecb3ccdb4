"""What code declares is in force, or said not to be: with the roles that docs/run/security.md says to use."""

from __future__ import annotations

import asyncio
import runpy
from typing import TYPE_CHECKING, Any

import pytest

import dibs
from dibs.events import NotInForce
from dibs.worker import Worker, WorkerSettings
from tests.integration.test_cli import Dibs
from tests.sql.conftest import login as login

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import psycopg

    from tests.sql.conftest import Login

DOCUMENTED = ("dibs_worker", "dibs_producer")
"""What docs/run/security.md grants to a worker whose handlers enqueue."""


class Shop:
    """An app with a limited task, a plain one and a schedule, and what it said and ran."""

    def __init__(self, dsn: str, limit: int | None = 2) -> None:
        self.app = app = dibs.App(dsn, queue="q", name="shop")
        self.running = self.most = self.plain = 0
        self.told: list[NotInForce] = []
        app.events.on(NotInForce, self.told.append)

        @app.task(name="narrow", concurrency=limit)
        async def narrow() -> None:
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0.005)
            self.running -= 1

        @app.schedule(interval=3600, name="hourly")
        @app.task(name="plain")
        async def plain() -> None:
            self.plain += 1

        self.narrow, self.task = narrow, plain

    async def work(self, **settings: Any) -> None:
        """Work until nothing is left to do."""
        given = {"queues": ["q"], "drain": True, "upkeep": False, "name": "shop.tasks:app", **settings}
        async with asyncio.timeout(60):
            await Worker(self.app, WorkerSettings(**given)).run()


@pytest.fixture
def shop(login: Login) -> Iterator[Callable[..., Shop]]:
    """Makes a shop whose role is a member of these."""
    made: list[Shop] = []

    def make(*roles: str, limit: int | None = 2, queues: list[str] | None = None) -> Shop:
        made.append(Shop(login(*roles, queues=queues).dsn, limit))
        return made[-1]

    yield make
    for one in made:
        one.app.close()


async def test_a_limit_that_is_not_in_force_keeps_its_task_from_running(
    shop: Callable[..., Shop], client: dibs.Client
) -> None:
    ours = shop(*DOCUMENTED)
    ours.narrow.enqueue_many(ours.narrow.call() for _ in range(20))
    ours.task.enqueue()
    await ours.work()
    assert (ours.most, ours.plain) == (0, 1)
    [told] = ours.told
    assert (told.what, told.name) == ("limit", "narrow")
    assert "its limit of 2 is not kept" in told.reason
    assert "lacks dibs_admin; as a role that may, run: dibs declare shop.tasks:app" in told.reason
    assert [limit.name for limit in client.limits.list()] == []


async def test_a_limit_that_an_operator_declared_is_kept_by_two_workers_of_the_documented_roles(
    shop: Callable[..., Shop],
) -> None:
    operator = shop("dibs_admin")
    await operator.work()
    ours = shop(*DOCUMENTED)
    jobs = ours.narrow.enqueue_many(ours.narrow.call() for _ in range(20))
    await asyncio.gather(ours.work(), ours.work())
    assert (ours.most, ours.told) == (2, [])
    assert {job.status().state for job in jobs} == {"succeeded"}


async def test_a_task_runs_as_soon_as_its_limit_is_in_force(
    shop: Callable[..., Shop], client: dibs.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dibs.worker.announce.RETRY_AFTER", 0.05)
    ours = shop(*DOCUMENTED)
    job = ours.narrow.enqueue()
    worker = Worker(ours.app, WorkerSettings(["q"], upkeep=False, poll=0.05))
    working = asyncio.create_task(worker.run())
    async with asyncio.timeout(30):
        while not ours.told:  # noqa: ASYNC110 - the worker tells
            await asyncio.sleep(0.01)
        client.limits.set(kind="narrow", concurrency=1)
        while not job.status().state.has_ended:  # noqa: ASYNC110 - the database tells
            await asyncio.sleep(0.02)
    worker.stop()
    await working
    assert len(ours.told) == 1


async def test_schedules_without_the_right_to_declare_them_are_said_not_to_be_in_force(
    shop: Callable[..., Shop], client: dibs.Client
) -> None:
    alone = shop("dibs_worker", limit=None)
    await alone.work()
    [told] = alone.told
    assert (told.what, told.name) == ("schedule", "hourly")
    assert "lacks dibs_producer; as a role that may, run: dibs declare shop.tasks:app" in told.reason
    assert client.schedules.list() == []
    await shop("dibs_worker", "dibs_producer", limit=None).work()
    await (again := shop("dibs_worker", limit=None)).work()
    assert again.told == []
    assert [schedule.status for schedule in client.schedules.list()] == ["healthy"]


async def test_what_cannot_be_declared_for_another_reason_stops_nothing_else(
    shop: Callable[..., Shop], db: psycopg.Connection[Any]
) -> None:
    """A schedule's name that is taken by another login used to drop every limit of the app."""
    db.execute('select dibs.set_schedule(\'hourly\', \'{"interval": 60}\', \'{"queue": "q", "kind": "k"}\')')
    await shop("dibs_admin").work()
    db.execute("select dibs.drop_schedule('hourly')")
    db.execute('select dibs.set_schedule(\'hourly\', \'{"interval": 60}\', \'{"queue": "q", "kind": "k"}\')')
    ours = shop(*DOCUMENTED)
    ours.narrow.enqueue()
    await ours.work()
    assert (ours.most, [(told.what, told.name) for told in ours.told]) == (1, [("schedule", "hourly")])
    assert "belongs to somebody else" in ours.told[0].reason


async def test_a_confined_worker_is_told_of_its_own_kinds_only(
    shop: Callable[..., Shop], client: dibs.Client, login: Login
) -> None:
    client.queues.set("q")
    client.limits.set(kind="narrow", concurrency=2)
    ours = shop(*DOCUMENTED, queues=["q"])
    ours.narrow.enqueue()
    await ours.work()
    assert (ours.most, ours.told) == (1, [])


MODULE = """
import dibs

app = dibs.App(queue="q", name="shop")

@app.schedule("0 3 * * *", name="nightly")
@app.task(name="narrow", concurrency=2)
def narrow() -> None: ...
"""


def test_the_command_declares_and_says_what_was_refused(
    dsn: str, login: Login, client: dibs.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "declared_shop.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    refused = Dibs(login(*DOCUMENTED).dsn)("declare", "declared_shop:app", code=1)
    assert "lacks dibs_admin; as a role that may, run: dibs declare declared_shop:app" in refused.err
    run = Dibs(login("dibs_admin").dsn)
    assert run("--json", "declare", "declared_shop:app").json == [
        {"what": "limit", "name": "narrow", "answer": "created", "reason": None},
        {"what": "schedule", "name": "nightly", "answer": "unchanged", "reason": None},
    ]
    assert "unchanged" in run("declare", "declared_shop:app").out
    assert [task.kind for task in client.workers.tasks()] == ["narrow"]


def test_an_app_has_one_name_however_its_module_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two names it would declare its schedules twice."""
    (tmp_path / "a_shop").mkdir()
    for file in ("__init__", "__main__", "jobs"):
        source = "" if file == "__init__" else "from dibs.scheduler import Schedules\nschedules = Schedules()\n"
        (tmp_path / "a_shop" / f"{file}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    assert runpy.run_module("a_shop.jobs")["schedules"].app == "a_shop.jobs"
    assert runpy.run_module("a_shop.jobs", run_name="__main__")["schedules"].app == "a_shop.jobs"
    assert runpy.run_module("a_shop", run_name="__main__")["schedules"].app == "a_shop"
    assert runpy.run_path(str(tmp_path / "a_shop" / "jobs.py"), run_name="__main__")["schedules"].app == "jobs"
