"""Producers that commit late, claimers that roll back, killed backends: no job of a group is without a pointer."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.sql.test_groups import done, drain, fill, left_behind, set_group, take
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.conftest import Connect

GROUPS = {
    "free": {},
    "heavy": {"weight": 4},
    "two": {"concurrency": 2},
    "strict": {"concurrency": 1},
    "rated": {"rate": 200},
}
JOBS = 40
PRODUCERS = 3
CLAIMERS = 4


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("policy", [{}, {"concurrency": 1}, {"weight": 3}])
def test_a_job_enqueued_while_a_claim_takes_the_last_one_is_found(
    connect: Connect, db: psycopg.Connection[Any], policy: dict[str, Any], end: str
) -> None:
    """Producer and claim do not wait for each other, even if the producer's snapshot is older than the claim."""
    if policy:
        set_group(db, **policy)
    [first] = fill(db, "a", 1)
    claimer, producer = connect(), connect()
    producer.execute("begin isolation level repeatable read")
    producer.execute("select count(*) from dibs.ready")
    claimer.execute("begin")
    [held] = take(claimer, 10)
    assert held[0] == first
    [second] = fill(producer, "a", 1)
    producer.execute("commit")
    claimer.execute(end)
    if end == "commit":
        done(db, [held])
    wait_until(lambda: drain(db, 10) == [] and ended(db) == 2, what="both are served")
    wait_until(lambda: take(db, 10) == [] and left_behind(db) == (0, 0), what="nothing is left behind")
    assert db.execute("select (dibs.status(%s)).state", (second,)).fetchone() == ("succeeded",)


def ended(db: psycopg.Connection[Any]) -> int:
    return len(db.execute("select distinct id from dibs.attempts where outcome = 'succeeded'").fetchall())


class Crowd:
    """Producers and claimers of one queue, each in its own thread; a killer may end their backends."""

    def __init__(self, connect: Connect) -> None:
        self.open = connect
        self.made = 0
        self.claims = 0
        self.lock = threading.Lock()
        self.over = threading.Event()
        self.pids: dict[int, int] = {}

    def connect(self, n: int) -> psycopg.Connection[Any]:
        conn = self.open()
        self.pids[n] = conn.info.backend_pid
        return conn

    def produce(self, n: int) -> None:
        rng = random.Random(n)
        conn = self.connect(n)
        left = JOBS
        while left > 0:
            count = rng.randint(1, 4)
            jobs = [
                {
                    "queue": "q", "kind": "k", "group": rng.choice(list(GROUPS)), "priority": rng.choice([5, 5, 9]),
                    "delay": rng.choice([0, 0, 0.02]), "cost": rng.choice([1, 1, 3]),
                }
                for _ in range(count)
            ]  # fmt: skip
            kept = rng.random() < 0.8
            try:
                conn.execute("begin")
                conn.execute("select count(*) from dibs.enqueue_many(%s)", (json.dumps(jobs),))
                self.let_claims_pass(rng.choice([0, 0, 5]))
                conn.execute("commit" if kept else "rollback")
            except psycopg.OperationalError:
                conn = self.connect(n)
                continue
            if kept:
                left -= count
                with self.lock:
                    self.made += count

    def let_claims_pass(self, count: int) -> None:
        enough = self.claims + count
        wait_until(lambda: self.claims >= enough, what="others have claimed meanwhile")

    def consume(self, n: int) -> None:
        rng = random.Random(n)
        conn = self.connect(n)
        while not self.over.is_set():
            try:
                self.consume_some(conn, rng)
            except psycopg.OperationalError:
                conn = self.connect(n)

    def consume_some(self, conn: psycopg.Connection[Any], rng: random.Random) -> None:
        conn.execute("select from dibs.rescue()")
        kept = rng.random() < 0.9
        conn.execute("begin")
        rows = take(conn, rng.choice([1, 3, 20]))
        self.claims += 1
        conn.execute("commit" if kept else "rollback")
        for id, token, _ in rows if kept else []:
            verb = rng.choice(
                ["complete(%s, %s)"] * 7 + ["fail(%s, %s, 'x')", "snooze(%s, %s, '10 ms')", "release(%s, %s)"]
            )
            try:
                conn.execute(f"select dibs.{verb}", (id, token))
            except psycopg.DatabaseError as error:
                if error.sqlstate != "DI001":
                    raise

    def kill(self, db: psycopg.Connection[Any]) -> None:
        rng = random.Random(0)
        while not self.over.wait(0.02):
            db.execute("select pg_terminate_backend(%s)", (rng.choice(list(self.pids.values())),))


@pytest.mark.parametrize("killed", [False, True])
def test_nothing_is_stranded_by_a_crowd(connect: Connect, db: psycopg.Connection[Any], killed: bool) -> None:
    db.execute(
        'select dibs.set_queue(\'q\', \'{"lease": 0.5, "max_attempts": 1000, "max_losses": 1000,'
        ' "backoff": {"kind": "constant", "delays": [0.01]}}\')'
    )
    for name, policy in GROUPS.items():
        if policy:
            set_group(db, name, **policy)
    crowd = Crowd(connect)
    with ThreadPoolExecutor(PRODUCERS + CLAIMERS + 1) as pool:
        claimers = [pool.submit(crowd.consume, n) for n in range(CLAIMERS)]
        if killed:
            claimers.append(pool.submit(crowd.kill, connect()))
        for producer in [pool.submit(crowd.produce, CLAIMERS + n) for n in range(PRODUCERS)]:
            producer.result()
        waiting = "select (select count(*) from dibs.ready) + (select count(*) from dibs.lease)"
        try:
            wait_until(lambda: db.execute(waiting).fetchone() == (0,), what="every job ends", timeout=60)
        finally:
            crowd.over.set()
        for claimer in claimers:
            claimer.result()
    wait_until(lambda: take(db, 10) == [] and left_behind(db) == (0, 0), what="nothing is left behind")
    assert db.execute("select count(*) from dibs.job").fetchone() == (ended(db),)
    if not killed:
        assert ended(db) == crowd.made
    assert most_at_once(db) == {"two": 2, "strict": 1}


def most_at_once(db: psycopg.Connection[Any]) -> dict[str, int]:
    """The most jobs of each limited group that ran at once, by the history of starts and ends."""
    runs = db.execute(
        "select j.group_name, a.claimed_at, a.ended_at from dibs.attempt as a join dibs.job as j using (id)"
        " where j.group_name in ('two', 'strict')"
    ).fetchall()
    events: defaultdict[str, list[tuple[Any, int]]] = defaultdict(list)
    for group, began, ended in runs:
        events[group] += [(began, 1), (ended, -1)]
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for group, times in events.items():
        for _, step in sorted(times):
            running[group] += step
            most[group] = max(most[group], running[group])
    return dict(most)


def test_a_claim_that_holds_the_first_pointer_does_not_break_the_order(
    connect: Connect, db: psycopg.Connection[Any]
) -> None:
    """A claim also reads the pointers of a strict group that another claim has locked."""
    set_group(db, concurrency=1)
    [first], [_] = fill(db, "a", 1), fill(db, "a", 1)
    other = connect()
    other.execute("begin")
    other.execute("select from dibs.group_pointer order by look_at limit 1 for update")
    [held] = take(db, 10)
    assert held[0] == first
    other.execute("rollback")
    done(db, [held])
    assert drain(db, 10) == ["a"]


@pytest.mark.parametrize("change", ["select dibs.cancel(%s)", "select dibs.edit(%s, '{\"payload\": 1}')"])
@pytest.mark.parametrize("priority", [5, 9])
def test_a_locked_job_does_not_break_the_order(
    connect: Connect, db: psycopg.Connection[Any], change: str, priority: int
) -> None:
    """In strict order the next job waits until the cancel of the first is rolled back, or its edit commits."""
    set_group(db, concurrency=1)
    [second] = fill(db, "a", 1)
    [first] = fill(db, "a", 1, priority=9)
    [third] = fill(db, "a", 1, priority=priority)
    if priority == 9:
        second, third = third, second
    operator = connect()
    operator.execute("begin")
    operator.execute(change, (first,))
    assert take(db, 10) == []
    operator.execute("rollback" if "cancel" in change else "commit")
    for job in (first, second, third):
        [held] = take(db, 10)
        assert held[0] == job
        done(db, [held])
