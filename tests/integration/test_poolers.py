"""Behind PgBouncer in transaction mode: what a worker says of it, and the settings that other libraries need there."""

from __future__ import annotations

import asyncio
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

import dibs
from dibs.client.bounded import ActingClient
from dibs.db.doctor import examine
from dibs.metrics import log_events
from dibs.worker import Worker, WorkerSettings
from tests.chaos.pgbouncer import PgBouncer
from tests.docs.pages import ROOT, blocks

if TYPE_CHECKING:
    import psycopg


async def test_a_worker_behind_a_pooler_says_so_once(dsn: str) -> None:
    async def warnings(dsn: str) -> list[dict[str, Any]]:
        app, stream = dibs.App(dsn, queue="q"), io.StringIO()

        @app.task(name="noop")
        async def noop() -> None: ...

        log = log_events(app.events, "json", level="warning", stream=stream)
        await noop.aenqueue()
        await Worker(app, WorkerSettings(("q",), drain=True, upkeep=False, poll=0.2)).run()
        await app.aclose()
        log.close()
        return [json.loads(line) for line in stream.getvalue().splitlines()]

    assert await warnings(dsn) == []
    with PgBouncer(dsn, pool_size=3) as pooled:
        (told,) = await warnings(pooled.dsn)
    assert (told["event"], told["level"], told["poll"]) == ("PoolerFound", "warning", 0.2)
    assert "looks for jobs every 0.2 s (--poll)" in told["message"]
    assert "a cancel reaches a running job when its lease is renewed" in told["message"]


@pytest.mark.parametrize(
    ("mode", "settings", "level"),
    [
        ("session", [], "note"),
        ("transaction", [], "note"),
        ("transaction", ["server_round_robin = 1", "min_pool_size = 3"], "note"),
        ("statement", [], "error"),
    ],
)
def test_the_doctor_tells_of_a_pooler_and_its_mode(dsn: str, mode: str, settings: list[str], level: str) -> None:
    with PgBouncer(dsn, 3, mode, *settings) as pooled:
        found = [finding for finding in examine(pooled.dsn) if finding.name == "pooler"]
    assert [(finding.level, finding.message) for finding in found] == [
        (level, f"a pooler in {mode} mode is between here and the server")
    ]


def test_the_doctor_finds_no_pooler_where_there_is_none(dsn: str) -> None:
    assert [finding for finding in examine(dsn) if finding.name == "pooler"] == []


async def test_the_dashboard_works_behind_a_pooler(dsn: str, client: dibs.Client) -> None:
    """The role that a transaction takes is gone with it, whichever connection serves the next."""
    client.queues.set("mail")
    with PgBouncer(dsn, pool_size=1) as pooled:
        reads, writes = (ActingClient(pooled.dsn, timeout=5, write=write) for write in (False, True))
        plain = dibs.AsyncClient(pooled.dsn)
        for _ in range(3):
            assert [queue.name for queue in await reads.queues.list()] == ["mail"]
            with writes.limited_to("pause"):
                await writes.queues.pause("mail")
                with pytest.raises(dibs.NotPermitted):
                    await writes.enqueue("mail", "k")
            await plain.enqueue("mail", "k")
        for each in (reads, writes, plain):
            await each.close()


async def test_sqlalchemy_and_asyncpg_work_behind_a_pooler_as_the_docs_say(
    dsn: str, db: psycopg.Connection[Any]
) -> None:
    """Many first requests at once, each in its transaction, on five server connections."""
    (recipe,) = (block for block in blocks(ROOT / "docs/run/wakeups.md") if "def pooled_engine" in block.text)
    names: dict[str, Any] = {}
    exec(recipe.text, names)
    db.execute("create table customer (id integer primary key)")
    with PgBouncer(dsn, pool_size=5) as pooled:
        url = pooled.dsn.replace("postgresql://", "postgresql+asyncpg://").replace("sslmode", "ssl")
        engine = names["pooled_engine"](url)
        async with dibs.AsyncClient(pooled.dsn) as client:

            async def request(n: int) -> None:
                async with AsyncSession(engine) as session, session.begin():
                    await session.execute(text("insert into customer values (:n)"), {"n": n})
                    await client.enqueue("mail", "welcome", {"user": n}, conn=session)
                    await session.execute(text("select count(*) from customer"))

            await asyncio.gather(*(request(n) for n in range(40)))
        await engine.dispose()
    counts = "select (select count(*) from customer), (select count(*) from dibs.ready)"
    assert db.execute(counts).fetchone() == (40, 40)
