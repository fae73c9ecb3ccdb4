"""The install is run again while producers, workers, observers and the upkeep go on."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from dibs import sql
from dibs.db.schema import migrate

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    Connection = psycopg.Connection[Any]

ROUNDS = 4
"""How often the install is run."""
JOBS = 20
"""How many jobs a batch has."""


class Traffic:
    """Threads with a connection each, which do one thing again and again until all is told to stop."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self.errors: Counter[str] = Counter()
        self.done: Counter[str] = Counter()

    def start(self, role: str, do: Callable[[Connection], None]) -> None:
        def run() -> None:
            with psycopg.connect(self._dsn, autocommit=True, prepare_threshold=1) as conn:
                conn.execute(f"set session authorization {role}")
                while not self._ended.is_set():
                    try:
                        do(conn)
                        self.done[do.__name__] += 1
                    except psycopg.Error as error:
                        self.errors[f"{do.__name__}: {error.sqlstate} {error}"] += 1

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def test_an_install_beside_traffic_breaks_nothing_and_loses_no_job(
    installed_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = [*sql.migrations(), (2, "more", "alter table dibs.job add column more integer")]
    made: set[Any] = set()
    completed: list[Any] = []

    def produce(conn: Connection) -> None:
        made.update(row[0] for row in conn.execute("select (dibs.enqueue('q', 'k', '{}')).job_id"))
        rows = conn.execute(
            "select id from dibs.enqueue_many((select jsonb_agg(jsonb_build_object('queue', 'q', 'kind', 'k', 'group',"
            " n %% 3, 'dedup_key', gen_random_uuid())) from generate_series(1, %s) as n))",
            (JOBS,),
        )
        made.update(row[0] for row in rows)

    def work(conn: Connection) -> None:
        jobs = conn.execute("select id, token from dibs.claim('{q}', %s)", (JOBS,)).fetchall()
        ids, tokens = [j[0] for j in jobs], [j[1] for j in jobs]
        conn.execute("select dibs.extend_many(%s, %s)", (ids, tokens))
        conn.execute("select dibs.release_many(%s, %s)", (ids[::5], tokens[::5]))
        conn.execute("select dibs.snooze_many(%s, %s, %s)", (ids[1::5], tokens[1::5], [timedelta()] * len(ids[1::5])))
        conn.execute("select dibs.fail_many(%s, %s, null)", (ids[2::50], tokens[2::50]))
        answers = conn.execute("select id, answer from dibs.complete_many(%s, %s)", (ids, tokens)).fetchall()
        completed.extend(id for id, answer in answers if answer == "ok")

    def watch(conn: Connection) -> None:
        conn.execute("select * from dibs.queues").fetchall()
        conn.execute("select * from dibs.depth()").fetchall()
        conn.execute("select * from dibs.jobs limit 10").fetchall()

    def keep(conn: Connection) -> None:
        for chore in ("rescue", "schedule", "roll_up", "forget", "make_days", "repair_groups"):
            [(outcome, error)] = conn.execute("select outcome, error from dibs.do_chore(%s, true)", (chore,)).fetchall()
            if outcome == "failed" and "lock timeout" not in error:  # It is tried again soon.
                raise psycopg.Error(f"{chore}: {error}")

    def operate(conn: Connection) -> None:
        conn.execute("select dibs.set_queue('q', '{\"max_attempts\": 10000}')")
        conn.execute('select dibs.set_schedule(\'s\', \'{"interval": 1}\', \'{"queue": "slots", "kind": "k"}\')')
        conn.execute("select dibs.pause('other'), dibs.resume('other')")

    traffic = Traffic(installed_dsn)
    with psycopg.connect(installed_dsn, autocommit=True) as conn:
        conn.execute(
            "select dibs.set_queue('q'), dibs.set_queue('other'), dibs.set_limit(kind => 'k', concurrency => 1000)"
        )
    try:
        for role, do in (
            ("dibs_producer", produce),
            ("dibs_worker", work),
            ("dibs_worker", work),
            ("dibs_observer", watch),
            ("dibs_worker", keep),
            ("dibs_admin", operate),
        ):
            traffic.start(role, do)
        for _ in range(ROUNDS):
            migrate(installed_dsn, repair=True, lock_timeout=60)
        monkeypatch.setattr(sql, "migrations", lambda: later)
        migrate(installed_dsn, lock_timeout=20)
    finally:
        traffic.stop()
    assert len(traffic.done) == 5
    assert traffic.errors == {}
    with psycopg.connect(installed_dsn, autocommit=True) as conn:
        assert conn.execute("select count(*) from dibs.lease").fetchone() == (0,)
        states: dict[Any, str] = dict(conn.execute("select id, state from dibs.jobs where queue = 'q'").fetchall())

    assert len(completed) == len(set(completed))
    assert {id for id, state in states.items() if state == "succeeded"} == set(completed)
    assert set(states) == made
    assert set(states.values()) <= {"succeeded", "ready", "scheduled", "blocked"}
