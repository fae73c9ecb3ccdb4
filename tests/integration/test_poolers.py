"""Behind PgBouncer in transaction mode: what a worker says of it, and the settings that other libraries need there."""

from __future__ import annotations

import asyncio
import io
import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

import dibs
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
