"""The shared part of the scenarios about groups and limits."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import psycopg

    from bench.stage import Stage


def fill(conn: psycopg.Connection[Any], groups: Iterable[str], *, batch: int = 200, **options: Any) -> None:
    """Enqueue one small job for each group named, in batches."""
    shared = {"queue": "q", "kind": "k", **options}
    jobs = [{**shared, "payload": group, "group": group} for group in groups]
    for at in range(0, len(jobs), batch):
        conn.execute("select count(*) from dibs.enqueue_many(%s::jsonb)", (json.dumps(jobs[at : at + batch]),))


def claim(conn: psycopg.Connection[Any], count: int) -> list[tuple[str, str, str]]:
    """Claim: (id, token, group) of each."""
    return conn.execute(
        "select id::text, token::text, payload #>> '{}' from dibs.claim('{q}', %s)", (count,)
    ).fetchall()


def complete(conn: psycopg.Connection[Any], rows: list[tuple[str, str, str]]) -> None:
    """Complete what was claimed."""
    ids, tokens = ("{" + ",".join(row[n] for row in rows) + "}" for n in (0, 1))
    conn.execute("select count(*) from dibs.complete_many(%s::uuid[], %s::uuid[])", (ids, tokens))


def serve(stage: Stage, claimers: int, batch: int, enough: Callable[[list[str]], bool]) -> tuple[list[str], float]:
    """Claim and complete from several connections until enough is served; the groups in order, and the seconds."""
    served: list[str] = []
    lock = threading.Lock()

    def work(_: int) -> None:
        with stage.connect() as conn:
            while rows := claim(conn, batch):
                with lock:
                    served.extend(row[2] for row in rows)
                complete(conn, rows)
                if enough(served):
                    return

    began = time.perf_counter()
    with ThreadPoolExecutor(claimers) as pool:
        list(pool.map(work, range(claimers)))
    return served, time.perf_counter() - began
