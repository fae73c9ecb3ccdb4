"""Limits that are set and changed while jobs run: what runs counts, even if its lease is locked at that moment."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

import dibs
from tests.sql.test_races import Later
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg

    from tests.conftest import Connect

    Connection = psycopg.Connection[Any]

LIMITS = {
    "queue": "select dibs.set_limit(queue => 'q', concurrency => %s)",
    "kind": "select dibs.set_limit(kind => 'k', concurrency => %s)",
    "resource": "select dibs.set_limit(resource => 'gpu', concurrency => %s)",
}
UNSET = {
    "queue": "select dibs.unset_limit(queue => 'q')",
    "kind": "select dibs.unset_limit(kind => 'k')",
    "resource": "select dibs.unset_limit(resource => 'gpu')",
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
    """It is not counted, which is said; and other claims go on."""
    enqueue(client, 10)
    claimer, notices = connect(), []
    claimer.execute("begin")
    assert len(claim(claimer, 3)) == 3
    db.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    db.execute(LIMITS["kind"], (3,))
    assert [n for n in notices if n and "still open" in n]
    assert len(claim(db, 10)) == 3


def test_units_that_outlived_a_limit_still_count(db: Connection, client: dibs.Client) -> None:
    """A limit that was a rate for a while knows its jobs again."""
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
    """Four workers that claim and end jobs in every way, until told to stop."""

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
where l.running > r.concurrency + r.debt
"""
"""Every job of the test is of the one queue and kind, and needs one of the resource."""


def test_three_limits_that_change_at_random_are_kept(connect: Connect, db: Connection, client: dibs.Client) -> None:
    """At no look does more run than the limit and what ran before it was set; in the end all units are there."""
    enqueue(client, 50)
    enqueue(client, 50, group=None)
    chance = random.Random(11)
    churn = Churn(connect)
    churn.start()
    try:
        for _ in range(50):
            of = chance.choice(list(LIMITS))
            is_set = db.execute("select from dibs.limit_rule where scope = %s", (of,)).fetchone() is not None
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
