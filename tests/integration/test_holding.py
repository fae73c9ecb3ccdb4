"""Workers that share the shards of a queue: real processes, one of them killed."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import dibs
from dibs.cluster import Holding, Member, holding
from dibs.db import calls
from dibs.db.database_async import AsyncDatabase
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import psycopg

    from dibs.testing import Clock

ROOT = Path(__file__).resolve().parents[2]
LEASE = 1.5

OVERLAPS = """
select count(*) from dibs.attempt as a join dibs.attempt as b on b.queue_id = a.queue_id and b.worker <> a.worker
where b.claimed_at > a.claimed_at and b.claimed_at < a.ended_at
"""
"""How often a worker took a job of a shard while another's run of that shard had not ended."""


@contextlib.contextmanager
def pullers(dsn: str, count: int) -> Iterator[dict[int, subprocess.Popen[str]]]:
    """So many processes, by their worker's number."""
    command = [sys.executable, "-m", "tests.integration.puller", dsn, "q"]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(count)]
    try:
        yield {int(p.stdout.readline()): p for p in started if p.stdout}
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.communicate(timeout=20)


def holders(client: dibs.Client) -> dict[int, set[str]]:
    held: dict[int, set[str]] = {}
    for shard in client.queues.shards("q"):
        if shard.held and shard.claimable and shard.worker is not None:
            held.setdefault(shard.worker, set()).add(shard.name)
    return held


def test_a_killed_worker_is_replaced_and_no_shard_has_two_pullers(
    dsn: str, client: dibs.Client, db: psycopg.Connection[Any]
) -> None:
    client.queues.set("q", shards=8, shard_lease=LEASE, lease=60, max_losses=100)

    def feed() -> bool:
        if client.queues.depth("q").ready < 200:
            client.enqueue_many(dibs.NewJob(queue="q", kind="k", shard_key=str(n)) for n in range(100))
        return True

    def shared_by(count: int) -> bool:
        feed()
        sizes = [8 // count + (n < 8 % count) for n in range(count)]
        return sorted(map(len, holders(client).values())) == sorted(sizes)

    def share_and_kill(running: dict[int, subprocess.Popen[str]]) -> None:
        wait_until(lambda: shared_by(4), what="four workers with two shards each")
        victim = next(iter(running))
        orphans = holders(client)[victim]
        wait_until(lambda: feed() and runs(db, victim) > 5, what="runs of the worker that is to be killed")
        killed_at = client._run(calls.schema.now())
        running[victim].kill()
        wait_until(lambda: shared_by(3), what="three workers with all eight shards")
        wait_until(
            lambda: feed() and len(served_since(db, killed_at, victim, orphans)) == len(orphans),
            what="runs in the shards of the dead",
        )
        last = max(served_since(db, killed_at, victim, orphans))
        assert last - killed_at < timedelta(seconds=LEASE + 1), "served again within the lease, and a moment to claim"

    feed()
    with pullers(dsn, 1) as first:
        wait_until(lambda: feed() and runs(db, next(iter(first))) > 9, what="one worker at work on all shards")
        with pullers(dsn, 3) as others:
            share_and_kill({**others, **first})
    assert holders(client) == {}, "those that stopped have let go"
    assert db.execute(OVERLAPS).fetchone() == (0,)
    wanted = db.execute("select count(distinct worker), count(distinct queue_id) from dibs.attempt").fetchone()
    assert wanted == (4, 8)


def runs(db: psycopg.Connection[Any], worker: int) -> int:
    row = db.execute("select count(*) from dibs.attempt where worker = %s", (worker,)).fetchone()
    return row[0] if row else 0


def served_since(db: psycopg.Connection[Any], since: datetime, dead: int, names: set[str]) -> list[datetime]:
    """When others first took a job of each of these shards."""
    rows = db.execute(
        "select min(a.claimed_at) from dibs.attempt as a join dibs.queue as q on q.id = a.queue_id"
        " where a.claimed_at > %s and a.worker <> %s and q.name = any (%s) group by q.id",
        (since, dead, list(names)),
    ).fetchall()
    return [row[0] for row in rows]


@pytest.fixture
async def database(dsn: str) -> AsyncIterator[AsyncDatabase]:
    database = AsyncDatabase(dsn, pool_size=2)
    yield database
    await database.close()


async def make(database: AsyncDatabase, lost: list[frozenset[str]] | None = None) -> Holding:
    member = Member(database, "test")
    await member.register()
    return Holding(database, member, ["q", "mail"], on_lost=(lost if lost is not None else []).append)


async def test_what_is_held_is_what_to_claim_from(client: dibs.Client, database: AsyncDatabase) -> None:
    client.queues.set("q", shards=2, shard_lease=9)
    one, two = await make(database), await make(database)
    assert one.names() == []
    assert await one.hold() <= 3
    assert one.names() == ["mail", "q", "q#1"]
    await two.hold()
    assert two.names() == ["mail"]
    await one.hold()
    await two.hold()
    assert (one.names(), two.names()) == (["mail", "q"], ["mail", "q#1"])
    await one.release()
    assert one.names() == []
    await two.hold()
    assert two.names() == ["mail", "q", "q#1"]


async def test_what_could_not_be_renewed_is_given_up_in_time(
    client: dibs.Client, database: AsyncDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holding, "MARGIN", 0.5)
    client.queues.set("q", exclusive=True, shard_lease=1)
    lost: list[frozenset[str]] = []
    one = await make(database, lost)
    before = time.monotonic()
    await one.hold()
    assert "q" in one.names()
    wait_until(lambda: "q" not in one.names(), what="the end of what we believe")
    assert time.monotonic() - before < 1, "before the database lets others have it"
    await one.fence()
    await one.fence()
    assert lost == [frozenset({"q"})]
    assert one.names() == ["mail"]


async def test_handing_over_is_not_losing(client: dibs.Client, database: AsyncDatabase, clock: Clock) -> None:
    client.queues.set("q", shards=2)
    lost: list[frozenset[str]] = []
    one, two = await make(database, lost), await make(database)
    for each in (one, two, one, two):
        await each.hold()
        await each.fence()
    assert lost == []
    assert len(one.names()) == len(two.names()) == 2
