"""Parked jobs: a worker that does not run their kind sets them aside for one that does."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import dibs
from dibs.cli.commands.workers import SILENT
from tests.sql.test_races import Later, later

if TYPE_CHECKING:
    from uuid import UUID

    from dibs.testing import Clock
    from tests.conftest import Connect
    from tests.sql.conftest import Login

    Connection = psycopg.Connection[Any]

__all__ = ["later"]


def register(db: Connection, queues: list[str], kinds: list[str] | None) -> UUID:
    """A worker that serves these queues and runs these kinds; its secret."""
    facts = json.dumps({"queues": queues})
    register = "select worker from dibs.register_worker('w', %s, %s)"
    [(worker,)] = db.execute(register, (facts, kinds)).fetchall()
    return worker  # type: ignore[no-any-return]


def park(db: Connection, *jobs: dibs.Claimed) -> list[str]:
    ids, tokens = [job.id for job in jobs], [job.token for job in jobs]
    rows = db.execute("select answer from dibs.park_many(%s, %s) order by item", (ids, tokens)).fetchall()
    return [answer for (answer,) in rows]


def unpark(db: Connection, worker: UUID, count: int = 100) -> int:
    return int(db.execute("select dibs.unpark(%s, %s)", (worker, count)).fetchall()[0][0])


def upkeep(db: Connection) -> None:
    db.execute("select dibs.do_chore('rescue', true)")


def test_a_kind_that_nobody_runs_is_claimed_ever_more_rarely_and_leaves_no_history(
    db: Connection, client: dibs.Client, clock: Clock
) -> None:
    clock.freeze()
    began = clock.now()
    job = client.enqueue("q", "new", ttl=timedelta(days=9))
    pauses: list[timedelta] = []
    while clock.now() < began + timedelta(hours=6):
        [claimed] = client.claim("q")
        assert park(db, claimed) == ["ok"]
        [(again,)] = db.execute("select again_at from dibs.blocked").fetchall()
        pauses.append(again - clock.now())
        clock.move(pauses[-1] - timedelta(seconds=1))
        upkeep(db)
        assert client.claim("q") == []
        clock.move(1)
        upkeep(db)
    assert len(pauses) < 20
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (timedelta(seconds=5), timedelta(hours=1))
    assert db.execute("select count(*) from dibs.attempt").fetchall() == [(0,)]
    assert client.status(job.id).state == "ready"
    [shown] = client.find_jobs().jobs
    assert shown.attempts == 0


def test_a_worker_that_runs_the_kind_brings_its_jobs_back_at_once_and_no_others(
    db: Connection, client: dibs.Client
) -> None:
    low = client.enqueue("q", "new")
    high = client.enqueue("q", "new", priority=9)
    client.enqueue("q", "other")
    client.enqueue("elsewhere", "new")
    park(db, *client.claim(["q", "elsewhere"], 9))
    for queues, kinds in ((["q"], ["old"]), (["q"], None), (["r"], ["new"])):
        assert unpark(db, register(db, queues, kinds)) == 0
    worker = register(db, ["q"], ["new"])
    assert unpark(db, worker, 1) == 1
    assert [job.id for job in client.claim("q", 9)] == [high.id]
    assert unpark(db, worker) == 1
    assert [job.id for job in client.claim("q", 9)] == [low.id]
    assert unpark(db, worker) == 0
    with pytest.raises(psycopg.Error, match="not registered"):
        unpark(db, high.id)


def claim_all(client: dibs.Client) -> list[dibs.Claimed]:
    """Claim four times: groups and limits may need several claims."""
    return [job for _ in range(4) for job in client.claim("q", 9)]


def test_what_is_parked_holds_no_unit_and_no_turn_of_its_group(db: Connection, client: dibs.Client) -> None:
    client.limits.set(kind="new", concurrency=1)
    client.groups.set("q", "g", concurrency=2)
    client.enqueue_many(dibs.NewJob(queue="q", kind=kind, group="g") for kind in ("new", "new", "old", "old"))
    seen: list[str] = []
    for _ in range(3):
        for job in claim_all(client):
            seen.append(job.kind)
            if job.kind == "new":
                assert park(db, job) == ["ok"]
    assert sorted(seen) == ["new", "new", "old", "old"]
    assert [(limit.scope, limit.used) for limit in client.limits.list()] == [("group", 2), ("kind", 0)]


def test_a_group_in_strict_order_waits_for_its_parked_job(db: Connection, client: dibs.Client) -> None:
    client.groups.set("q", "g", concurrency=1)
    first = client.enqueue("q", "new", group="g")
    second = client.enqueue("q", "old", group="g")
    free = client.enqueue("q", "old")
    jobs = {job.id: job for job in claim_all(client)}
    assert set(jobs) == {first.id, free.id}
    park(db, jobs[first.id])
    assert claim_all(client) == []
    unpark(db, register(db, ["q"], ["new"]))
    [job] = claim_all(client)
    assert job.id == first.id
    client.complete(job)
    assert [job.id for job in claim_all(client)] == [second.id]


def test_a_parked_job_is_cancelled_expired_and_counted_like_any_that_waits(
    db: Connection, client: dibs.Client, clock: Clock
) -> None:
    asked, cancelled, expired = (client.enqueue("q", "new", ttl=60) for _ in range(3))
    jobs = {job.id: job for job in client.claim("q", 9)}
    client.cancel(asked.id, "no")
    assert park(db, *(jobs[one.id] for one in (asked, cancelled, expired))) == ["ok"] * 3
    assert client.status(asked.id).state == "cancelled"
    assert (client.queues.depth("q").blocked, client.queues.depth("q").waiting) == (2, 2)
    assert park(db, jobs[cancelled.id]) == ["lost"]
    client.cancel(cancelled.id)
    clock.move(100)
    client.upkeep.expire()
    assert [s.state for s in client.status_many([cancelled.id, expired.id])] == ["cancelled", "expired"]
    db.execute("select dibs.forget()")
    assert db.execute("select count(*) from dibs.parked_kind").fetchall() == [(0,)]


def test_why_says_that_no_live_worker_serves_the_queue_or_runs_the_kind(
    db: Connection, client: dibs.Client, clock: Clock
) -> None:
    clock.freeze()
    job = client.enqueue("q", "new", ttl=timedelta(days=9))
    assert "nothing is ahead of it; no live worker says that it serves queue 'q'." in client.why(job.id)
    register(db, ["q"], ["old"])
    assert "nothing is ahead of it; no live worker of queue 'q' runs kind 'new'." in client.why(job.id)
    park(db, *client.claim("q"))
    assert "does not run kind 'new'; no live worker of queue 'q' runs kind 'new'. It is offered to all again at" in (
        client.why(job.id)
    )
    register(db, ["q"], ["new"])
    assert "it waits for one that does" in client.why(job.id)
    clock.move(SILENT)
    assert "no live worker says that it serves queue 'q'" in client.why(job.id)
    client.queues.set("wide", shards=2)
    job = client.enqueue("wide", "new", shard_key="a")
    assert "no live worker says that it serves queue" in client.why(job.id)
    register(db, ["wide"], None)  # It does not say what it runs, so it may be this.
    assert "no live worker" not in client.why(job.id)


def test_two_workers_that_come_at_once_share_what_is_parked(dsn: str, db: Connection, client: dibs.Client) -> None:
    client.enqueue_many(dibs.NewJob(queue="q", kind="new") for _ in range(200))
    park(db, *client.claim("q", 500))
    workers = [register(db, ["q"], ["new"]) for _ in range(4)]

    def bring(worker: UUID) -> int:
        with psycopg.connect(dsn, autocommit=True) as conn:
            return sum(unpark(conn, worker, 30) for _ in range(10))

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(bring, workers)) == 200
    assert len(client.claim("q", 500)) == 200


@pytest.mark.parametrize("first", ["park", "forget"])
def test_what_is_parked_while_its_kind_is_forgotten_is_brought_back(
    first: str, db: Connection, client: dibs.Client, connect: Connect, later: Later
) -> None:
    worker = register(db, ["q"], ["new"])
    client.enqueue("q", "new")
    park(db, *client.claim("q"))
    assert unpark(db, worker) == 1
    [job] = client.claim("q")
    one, other = connect(), connect()
    one.execute("begin")
    if first == "park":
        park(one, job)
        later.start(other, "select dibs.forget()").result()
        one.execute("commit")
    else:
        one.execute("select dibs.forget()")
        parking = later.start(other, "select dibs.park(%s, %s)", job.id, job.token)
        one.execute("commit")
        parking.result()
    assert unpark(db, worker) == 1


def test_a_confined_worker_brings_back_nothing_of_another_queue(
    db: Connection, client: dibs.Client, login: Login
) -> None:
    client.queues.set("ours")
    client.enqueue("theirs", "new")
    park(db, *client.claim("theirs"))
    confined = login("dibs_worker", queues=["ours"])
    with psycopg.connect(confined.dsn, autocommit=True) as conn:
        assert unpark(conn, register(conn, ["ours", "theirs"], ["new"])) == 0
    assert client.queues.depth("theirs").blocked == 1


def test_upkeep_of_limits_leaves_parked_jobs_alone(db: Connection, client: dibs.Client) -> None:
    client.limits.set(kind="other", concurrency=1)
    client.enqueue("q", "new")
    park(db, *client.claim("q"))
    client.upkeep.repair_limits()
    assert client.queues.depth("q").blocked == 1
