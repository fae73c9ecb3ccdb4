"""One job at a time, by 8 clients at once: what the server can do, without waiting for the disk.

An enqueue is compared, in turns, with two bare inserts, in one statement, into tables of the same columns and indexes
that have no days, no bell and no policy. A client that claims takes one job and completes it.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from bench.clients import rate

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED = {"enqueue_per_s": ("≥", 10_000), "enqueue_ratio": ("≥", 0.40), "claim_complete_per_s": ("≥", 5_000)}
CLIENTS = 8
SECONDS = 3
TURNS = 3

BARE_TABLES = """
create schema bare;
create table bare.job (like dibs.job including indexes);
create table bare.ready (like dibs.ready including indexes)
"""
BARE = """
with made as (
  insert into bare.job (id, due_at, queue_id, priority, kind, payload)
  values (gen_random_uuid(), clock_timestamp(), 1, 5, 'k', '{"user_id": 1, "lang": "en"}')
  returning id, due_at
)
insert into bare.ready (id, due_at, expire_at, queue_id, run, charged, losses, priority, ring)
select id, due_at, due_at + interval '1 day', 1, 0, 0, 0, 5, true from made;
"""
ENQUEUE = """select dibs.enqueue('q', 'k', '{"user_id": 1, "lang": "en"}');\n"""
CLAIM_COMPLETE = """
select id, token from dibs.claim('{q}', 1) \\gset
select dibs.complete(:id, :token);
"""


def run(stage: Stage) -> dict[str, float]:
    with stage.connect() as conn:
        conn.execute(BARE_TABLES)
        conn.execute("select dibs.set_queue('q')")
    return {**_enqueue(stage), **_claim_complete(stage)}


def _enqueue(stage: Stage) -> dict[str, float]:
    rates: dict[str, list[float]] = {ENQUEUE: [], BARE: []}
    for script in rates:
        rate(stage, script, clients=CLIENTS, seconds=1, durable=False)
    for _ in range(TURNS):
        for script, measured in rates.items():
            measured.append(rate(stage, script, clients=CLIENTS, seconds=SECONDS, durable=False))
    enqueue, bare = median(rates[ENQUEUE]), median(rates[BARE])
    return {"enqueue_per_s": enqueue, "bare_per_s": bare, "enqueue_ratio": enqueue / bare}


def _claim_complete(stage: Stage) -> dict[str, float]:
    with stage.connect() as conn:
        stage.fill(conn, 100_000, batch=1000)
    rates = [rate(stage, CLAIM_COMPLETE, clients=CLIENTS, seconds=SECONDS, durable=False) for _ in range(TURNS)]
    return {"claim_complete_per_s": median(rates)}
