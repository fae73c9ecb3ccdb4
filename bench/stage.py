"""The stage of a scenario: a fresh database with dibs on a separate server."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg

from dibs.db.admin import create_database, drop_database
from dibs.db.schema import migrate
from dibs.embedded import Binaries, Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

SETTINGS = {
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
    "max_connections": "60",
    "shared_preload_libraries": "pg_stat_statements",
}
BATCH = 200


@dataclass
class Stage:
    """A fresh database, and what scenarios do to it."""

    dsn: str
    binaries: Binaries | None
    scale: float = 1.0

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn, autocommit=True)

    def fill(self, conn: psycopg.Connection[Any], jobs: int, *, batch: int = BATCH, **options: Any) -> float:
        """Enqueue jobs with a small payload, in batches; how many seconds it took."""
        documents = [
            json.dumps(
                [
                    {"queue": "q", "kind": "k", "payload": {"user_id": n + i, "lang": "en"}, **options}
                    for i in range(batch)
                ]
            )
            for n in range(0, jobs, batch)
        ]
        began = time.perf_counter()
        for document in documents:
            conn.execute("select count(*) from dibs.enqueue_many(%s::jsonb)", (document,))
        return time.perf_counter() - began

    def drain(self, conn: psycopg.Connection[Any], jobs: int | None = None, queue: str = "q") -> tuple[int, float]:
        """Claim and complete in batches until nothing is left; how many jobs, and how many seconds."""
        done = 0
        began = time.perf_counter()
        while jobs is None or done < jobs:
            claimed = "select id::text, token::text, payload::text from dibs.claim(array[%s], %s)"
            rows = conn.execute(claimed, (queue, BATCH)).fetchall()
            if not rows:
                break
            ids, tokens = ("{" + ",".join(row[n] for row in rows) + "}" for n in (0, 1))
            conn.execute("select count(*) from dibs.complete_many(%s::uuid[], %s::uuid[])", (ids, tokens))
            done += len(rows)
        return done, time.perf_counter() - began

    def server_ms(self, conn: psycopg.Connection[Any], pattern: str) -> tuple[float, int]:
        """The server's time in statements like the pattern, in milliseconds, and how many there were."""
        row = conn.execute(
            "select coalesce(sum(total_exec_time), 0), coalesce(sum(calls), 0) from pg_stat_statements"
            " where query like %s",
            (pattern,),
        ).fetchone()
        assert row
        return float(row[0]), int(row[1])

    def blocks_since(self) -> int:
        """Return the blocks that the server has read since the last call, except for enqueues."""
        with self.connect() as conn:
            row = conn.execute(
                "select coalesce(sum(s.shared_blks_hit + s.shared_blks_read), 0) from pg_stat_statements as s"
                " where s.query like 'select%dibs.%' and s.query not like '%enqueue%' and s.dbid ="
                " (select d.oid from pg_database as d where d.datname = current_database())"
            ).fetchone()
            conn.execute("select pg_stat_statements_reset()")
        assert row
        return int(row[0])

    def pinned(self) -> psycopg.Connection[Any]:
        """A connection that holds the horizon back: an open REPEATABLE READ transaction with a transaction id."""
        conn = self.connect()
        conn.execute("begin isolation level repeatable read")
        conn.execute("select pg_current_xact_id()")
        return conn


@contextlib.contextmanager
def staged(dsn: str | None, scale: float = 1.0) -> Iterator[Callable[[str], AbstractContextManager[Stage]]]:
    """Make stages: on a throwaway server, or on the one given."""
    if dsn:
        yield lambda _: contextlib.nullcontext(Stage(dsn, None, scale))
        return
    with Server.temporary(settings=SETTINGS) as server:

        @contextlib.contextmanager
        def make(name: str) -> Iterator[Stage]:
            create_database(server.dsn("postgres"), name)
            migrate(server.dsn(name))
            with psycopg.connect(server.dsn(name), autocommit=True) as conn:
                conn.execute("create extension pg_stat_statements")
                conn.execute("select pg_stat_statements_reset()")
                conn.execute("checkpoint")
            yield Stage(server.dsn(name), server.binaries, scale)
            drop_database(server.dsn("postgres"), name)

        yield make


def percentile(values: list[float], share: float) -> float:
    """The value below which that share of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def script(text: str) -> LiteralString:
    """A statement of a scenario's own."""
    return text
