"""Limits of every sort with 16 claimers, some of which crash: the most that ran at once, and how fast; and a rate."""

from __future__ import annotations

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"worst_excess": ("≤", 0), "rate_started_in_10_s": ("≤", 1010)}
TOP = 5
JOBS = 1_000
SORTS: dict[str, tuple[str, dict[str, Any]]] = {
    "queue": ("select dibs.set_limit(queue => 'queue', concurrency => 5)", {}),
    "kind": ("select dibs.set_limit(kind => 'kind', concurrency => 5)", {}),
    "resource": ("select dibs.set_limit(resource => 'gpu', concurrency => 10)", {"resources": {"gpu": 2}}),
    "group": ("select dibs.set_group('group', null, '{\"concurrency\": 5}')", {"group": "a"}),
}


def run(stage: Stage) -> dict[str, float]:
    measured: dict[str, float] = {}
    rates: dict[str, float] = {}
    with stage.connect() as conn:
        for sort, (statement, options) in SORTS.items():
            conn.execute('select dibs.set_queue(%s, \'{"lease": 0.5, "max_attempts": 99, "max_losses": 99}\')', (sort,))
            conn.execute(statement)
            jobs = [{"queue": sort, "kind": sort, **options}] * JOBS
            conn.execute("select count(*) from dibs.enqueue_many(%s::jsonb)", (json.dumps(jobs),))
            began = time.perf_counter()
            _work(stage, sort)
            rates[f"{sort}_jobs_per_s"] = JOBS / (time.perf_counter() - began)
            measured[f"{sort}_most_at_once"] = _most(conn, sort)
        measured["worst_excess"] = max(measured.values()) - TOP
        measured["rate_started_in_10_s"] = _rate(conn)
    return measured | rates


def _work(stage: Stage, queue: str) -> None:
    left = [JOBS]
    lock = threading.Lock()

    def one(n: int) -> None:
        rng = random.Random(n)
        with stage.connect() as conn:
            while left[0] > 0:
                if n == 0:
                    conn.execute("select from dibs.rescue()")
                for id, token in conn.execute("select id, token from dibs.claim(array[%s], 3)", (queue,)).fetchall():
                    if rng.random() < 0.01:
                        continue
                    try:
                        conn.execute("select dibs.complete(%s, %s)", (id, token))
                        with lock:
                            left[0] -= 1
                    except psycopg.DatabaseError as error:
                        if error.sqlstate != "DI001":
                            raise

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, range(16)))


def _most(conn: psycopg.Connection[Any], queue: str) -> int:
    rows = conn.execute("select claimed_at, ended_at from dibs.attempts where queue = %s", (queue,)).fetchall()
    running = most = 0
    for _, step in sorted([(end, -1) for _, end in rows] + [(start, 1) for start, _ in rows]):
        running += step
        most = max(most, running)
    return most


def _rate(conn: psycopg.Connection[Any]) -> int:
    """Virtual time: the clock is moved 10 ms for each claim."""
    conn.execute("create table public.moved (by interval not null)")
    conn.execute("insert into public.moved values ('0')")
    conn.execute(
        "create or replace function dibs.now() returns timestamptz language sql volatile"
        " return timestamptz '2030-01-01' + (select m.by from public.moved as m)"
    )
    conn.execute("select dibs.set_limit(queue => 'rated', rate => 100, burst => 10)")
    jobs = json.dumps([{"queue": "rated", "kind": "k"}] * 2000)
    conn.execute("select count(*) from dibs.enqueue_many(%s::jsonb)", (jobs,))
    started = -len(conn.execute("select id from dibs.claim('{rated}', 100)").fetchall())
    for _ in range(1000):
        conn.execute("update public.moved set by = by + interval '10 ms'")
        started += len(conn.execute("select id from dibs.claim('{rated}', 100)").fetchall())
    return started + 10
