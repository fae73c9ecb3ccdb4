"""Limits, groups and priorities in two queues, served by claimers that take one or many, with the horizon held back."""

from __future__ import annotations

import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from tests.conftest import Connect

JOBS = 300
CLAIMERS = 6
PATIENCE = 60
LEFT = "select exists (select from dibs.ready) or exists (select from dibs.blocked) or exists (select from dibs.lease)"


def some_job(rng: random.Random) -> dict[str, Any]:
    return {
        "queue": rng.choice("qqp"),
        "kind": rng.choice("kkx"),
        "priority": 7 if rng.random() < 0.05 else 5,
        "group": rng.choice([None, None, None, "a", "b"]),
        "resources": rng.choice([None, None, {"gpu": 1}, {"gpu": 3}]),
    }


def serve(dsn: str, seed: int, ended: list[Any], until: float) -> None:
    rng = random.Random(seed)
    with psycopg.connect(dsn, autocommit=True) as db:
        while db.execute(LEFT).fetchone() == (True,) and time.monotonic() < until:
            queues = rng.choice([["q"], ["p"], ["q", "p"]])
            claimed = "select id, token from dibs.claim(%s, %s)"
            for id, token in db.execute(claimed, (queues, rng.choice([1, 2, 10, 100]))).fetchall():
                if rng.random() < 0.04:
                    db.execute("select dibs.release(%s, %s)", (id, token))
                elif db.execute("select dibs.complete(%s, %s)", (id, token)).fetchone() == ("ok",):
                    ended.append(id)


def test_every_job_of_a_mix_is_found(connect: Connect, db: psycopg.Connection[Any], dsn: str) -> None:
    db.execute("select dibs.set_limit(kind => 'k', concurrency => 7)")
    db.execute("select dibs.set_limit(resource => 'gpu', concurrency => 4)")
    holder = connect()
    holder.execute("begin isolation level repeatable read")
    holder.execute("select pg_current_xact_id()")
    rng = random.Random(1)
    jobs = json.dumps([some_job(rng) for _ in range(JOBS)])
    made = {id for (id,) in db.execute("select id from dibs.enqueue_many(%s)", (jobs,)).fetchall()}
    ended: list[Any] = []
    until = time.monotonic() + PATIENCE
    with ThreadPoolExecutor(CLAIMERS) as pool:
        list(pool.map(lambda seed: serve(dsn, seed, ended, until), range(CLAIMERS)))
    assert not made - set(ended), f"not all were found in {PATIENCE} s"
    assert len(ended) == JOBS, "each once"
