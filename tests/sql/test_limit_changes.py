"""Limits are set and changed while jobs run. Running jobs count, even if their leases are locked at that moment."""

from __future__ import annotations

import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import dibs
from tests.sql.test_races import Later
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Connect
    from tests.sql.conftest import Login

    Connection = psycopg.Connection[Any]

LIMITS = {
    "queue": "select dibs.set_limit(queue => 'q', concurrency => %s)",
    "kind": "select dibs.set_limit(kind => 'k', concurrency => %s)",
    "resource": "select dibs.set_limit(resource => 'gpu', concurrency => %s)",
}
UNSET = {
    "queue": "select dibs.drop_limit(queue => 'q')",
    "kind": "select dibs.drop_limit(kind => 'k')",
    "resource": "select dibs.drop_limit(resource => 'gpu')",
}
SETTINGS = {**LIMITS, "group": """select dibs.set_group('q', 'g', jsonb_build_object('concurrency', %s::int))"""}


@pytest.fixture
def later(connect: Connect) -> Iterator[Later]:
    later = Later(connect())
    yield later
    later.close()


def enqueue(client: dibs.Client, count: int, group: str | None = "g") -> None:
    client.enqueue_many(dibs.NewJob(queue="q", kind="k", resources={"gpu": 1}, group=group) for _ in range(count))


def claim(conn: Connection, count: int) -> list[tuple[Any, Any]]:
    return conn.execute("select id, token from dibs.claim('{q}', %s)", (count,)).fetchall()


@pytest.mark.parametrize("of", SETTINGS)
def test_a_limit_counts_a_job_whose_lease_is_locked(
    of: str, later: Later, connect: Connect, db: Connection, client: dibs.Client
) -> None:
    enqueue(client, 10)
    held = claim(db, 3)
    keeper = connect()
    keeper.execute("begin")
    keeper.execute("select dibs.extend(%s, %s)", held[0])
    setting = later.start(connect(), SETTINGS[of], 3)
    assert not setting.done()
    keeper.execute("commit")
    setting.result()
    assert claim(db, 10) == []
    db.execute("select dibs.complete(%s, %s)", held[0])
    assert len(claim(db, 10)) == 1


@pytest.mark.parametrize("of", SETTINGS)
def test_a_limit_counts_a_claim_in_flight(
    of: str, later: Later, connect: Connect, db: Connection, client: dibs.Client
) -> None:
    enqueue(client, 10)
    claimer = connect()
    claimer.execute("begin")
    assert len(claim(claimer, 3)) == 3
    setting = later.start(connect(), SETTINGS[of], 3)
    assert not setting.done()
    claimer.execute("commit")
    setting.result()
    assert claim(db, 10) == []


def test_a_claim_that_stays_open_holds_no_limit_up(connect: Connect, db: Connection, client: dibs.Client) -> None:
    """Its jobs are not counted, a warning says so, and other claims go on."""
    enqueue(client, 10)
    claimer, notices = connect(), []
    claimer.execute("begin")
    assert len(claim(claimer, 3)) == 3
    db.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    db.execute(LIMITS["kind"], (3,))
    assert [n for n in notices if n and "still open" in n]
    assert len(claim(db, 10)) == 3


def test_units_that_outlived_a_limit_still_count(db: Connection, client: dibs.Client) -> None:
    """A limit that had only a rate for a while counts running jobs again."""
    enqueue(client, 10)
    db.execute(LIMITS["queue"], (4,))
    assert len(claim(db, 10)) == 4
    db.execute("select dibs.set_limit(queue => 'q', rate => 1000000)")
    db.execute(LIMITS["queue"], (4,))
    assert claim(db, 10) == []
    assert db.execute("select dibs.repair_limits()").fetchone() == (0,)


ENDS = (
    """select dibs.complete(%s, %s, null, '[{"queue": "q", "kind": "k", "resources": {"gpu": 1}}]')""",
    "select dibs.release(%s, %s)",
    "select dibs.snooze(%s, %s, '0')",
)


class Churn:
    """Four workers that claim and end jobs in every way, until they are stopped."""

    def __init__(self, connect: Connect) -> None:
        self._stop = threading.Event()
        self.ended = 0
        self.errors: list[Exception] = []
        self._threads = [threading.Thread(target=self._work, args=(connect(), n)) for n in range(4)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait(self) -> None:
        """Until a few more jobs have ended."""
        enough = self.ended + 5
        wait_until(lambda: self.ended >= enough or self.errors, what="jobs run")

    def _work(self, conn: Connection, seed: int) -> None:
        chance = random.Random(seed)
        held: list[tuple[Any, Any]] = []
        try:
            while not self._stop.is_set():
                held += claim(conn, 3)
                conn.execute("select from dibs.extend_many(%s, %s)", ([h[0] for h in held], [h[1] for h in held]))
                chance.shuffle(held)
                while held and chance.random() < 0.7:
                    conn.execute(chance.choice(ENDS), held.pop())
                    self.ended += 1
        except Exception as error:
            self.errors.append(error)


OVERRUN = """
select r.scope, r.concurrency, r.debt, l.running
from dibs.limit_rule as r cross join (select count(*) as running from dibs.lease) as l
where r.is_set and l.running > r.concurrency + r.debt
"""
"""Every job of the test is of the one queue and kind, and needs one of the resource."""


def test_three_limits_that_change_at_random_are_kept(connect: Connect, db: Connection, client: dibs.Client) -> None:
    """Never do more jobs run than the limit and the jobs from before it was set; in the end all units are there."""
    enqueue(client, 50)
    enqueue(client, 50, group=None)
    chance = random.Random(11)
    churn = Churn(connect)
    churn.start()
    try:
        for _ in range(50):
            of = chance.choice(list(LIMITS))
            is_set = db.execute("select from dibs.limit_rule where is_set and scope = %s", (of,)).fetchone() is not None
            if is_set and chance.random() < 0.3:
                db.execute(UNSET[of])
            else:
                db.execute(LIMITS[of], (chance.randint(1, 6),))
            for _ in range(10):
                assert db.execute(OVERRUN).fetchall() == []
            churn.wait()
    finally:
        churn.stop()
    assert churn.errors == []
    assert db.execute("select dibs.repair_limits()").fetchone() == (0,)


def declare(db: Connection, concurrency: int | None) -> str:
    """The answer when code declares a limit of the kind ``render``."""
    limits = json.dumps([{"kind": "render", "concurrency": concurrency}])
    [(kind, answer)] = db.execute("select * from dibs.declare_limits(%s)", (limits,)).fetchall()
    assert kind == "render"
    return str(answer)


def test_a_declared_limit_is_set_once_and_an_operators_change_stays_until_the_code_changes(
    db: Connection, client: dibs.Client
) -> None:
    def concurrency() -> list[int | None]:
        return [limit.concurrency for limit in client.limits.list()]

    assert (declare(db, None), concurrency()) == ("unchanged", [])
    assert (declare(db, 2), concurrency()) == ("created", [2])
    assert (declare(db, 2), concurrency()) == ("unchanged", [2])
    client.limits.set(kind="render", concurrency=7)
    assert (declare(db, 2), concurrency()) == ("unchanged", [7])
    assert [limit.declared for limit in client.limits.list()] == [2]
    assert (declare(db, 3), concurrency()) == ("changed", [3])
    assert (declare(db, None), concurrency()) == ("removed", [])
    client.limits.set(kind="render", concurrency=4)
    assert (declare(db, None), concurrency()) == ("unchanged", [4])
    assert (declare(db, 4), concurrency()) == ("unchanged", [4])
    client.limits.set(kind="render", concurrency=5)
    assert (declare(db, None), concurrency()) == ("unchanged", [5])
    assert [limit.declared for limit in client.limits.list()] == [None]


def test_a_caller_who_may_not_set_limits_is_told_whether_they_are_in_force(
    db: Connection, client: dibs.Client, login: Login
) -> None:
    worker = login("dibs_worker")
    with psycopg.connect(worker.dsn, autocommit=True) as ours:
        assert declare(ours, 2) == "refused"
        client.limits.set(kind="render", concurrency=3)
        assert (declare(ours, 2), declare(ours, 3), declare(ours, 9)) == ("refused", "unchanged", "unchanged")
        assert declare(db, 2) == "changed"
        client.limits.set(kind="render", concurrency=50)
        assert (declare(ours, 2), declare(ours, 3)) == ("unchanged", "refused")
        assert declare(ours, None) == "unchanged"
    assert [(limit.concurrency, limit.declared) for limit in client.limits.list()] == [(50, 2)]


def test_two_callers_that_declare_the_same_limit_set_it_once(dsn: str, client: dibs.Client) -> None:
    with psycopg.connect(dsn) as one, psycopg.connect(dsn, autocommit=True) as other, ThreadPoolExecutor(1) as pool:
        assert declare(one, 2) == "created"
        waiting = pool.submit(declare, other, 2)
        one.commit()
        assert waiting.result(30) in {"created", "unchanged"}
    client.enqueue_many([dibs.NewJob(queue="q", kind="render") for _ in range(9)])
    assert len(client.claim("q", 9)) == 2


def test_several_limits_are_declared_while_one_transaction_ends_jobs_of_two_of_them(
    connect: Connect, db: Connection, client: dibs.Client
) -> None:
    """Leases of the first limit must not stay locked while the leases of the second are awaited."""
    client.enqueue("q", "one")
    client.enqueue("q", "two")
    held = {job.kind: (job.id, job.token) for job in client.claim("q", 2)}
    ender, declarer = connect(), connect()
    ender.execute("set deadlock_timeout = '300ms'")
    ender.execute("begin")
    ender.execute("select dibs.complete(%s, %s)", held["two"])
    later = Later(connect())
    both = json.dumps([{"kind": "one", "concurrency": 1}, {"kind": "two", "concurrency": 1}])
    declared = later.start(declarer, "select kind, answer from dibs.declare_limits(%s)", both)
    assert ender.execute("select dibs.complete(%s, %s)", held["one"]).fetchone() == ("ok",)
    ender.execute("commit")
    assert declared.result(30) == [("one", "created"), ("two", "created")]
    later.close()
    assert [(limit.name, limit.used, limit.free) for limit in client.limits.list()] == [("one", 0, 1), ("two", 0, 1)]
    assert db.execute("select dibs.repair_limits()").fetchone() == (0,)


def test_a_kind_is_declared_once(db: Connection) -> None:
    twice = json.dumps([{"kind": "render", "concurrency": 1}, {"kind": "render", "concurrency": 2}])
    with pytest.raises(psycopg.Error, match="kind 'render' is declared 2 times"):
        db.execute("select * from dibs.declare_limits(%s)", (twice,))
