"""Instructions that the server executes for each job, counted by callgrind in a single-user server.

A count is the same however busy the machine is, so a change of one percent shows. Needs Debian's package valgrind. The
short path of a claim of one job, which is open for 20 ms after such a claim, is rarely taken here: callgrind is slow.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from typing import TYPE_CHECKING

import psycopg

from dibs.db.schema import migrate
from dibs.embedded import Server
from dibs.embedded.account import account_for

if TYPE_CHECKING:
    from bench.stage import Stage

WANTED: dict[str, tuple[str, float]] = {}
JOBS = 20_000
CALLS = 40
PAYLOAD = '{"user_id": 1, "lang": "en"}'
HUNDRED = json.dumps([{"queue": "q", "kind": "k", "payload": json.loads(PAYLOAD)}] * 100)
COMPLETE = "select count(*) from dibs.complete_many(array(select id from c), array(select token from c))"
STATEMENTS = {
    "enqueue": (1, f"select dibs.enqueue('q', 'k', '{PAYLOAD}')"),
    "enqueue_many": (100, f"select count(*) from dibs.enqueue_many('{HUNDRED}')"),
    "claim": (100, "select count(*) from dibs.claim('{q}', 100)"),
    "claim_complete": (100, f"with c as materialized (select * from dibs.claim('{{q}}', 100)) {COMPLETE}"),
    "claim_complete_one": (1, f"with c as materialized (select * from dibs.claim('{{q}}', 1)) {COMPLETE}"),
    "claim_limited": (100, "select count(*) from dibs.claim('{limited}', 100)"),
}
"""Return the number of jobs in a statement, and the statement on one line."""


def run(stage: Stage) -> dict[str, float]:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        sys.exit("bench instructions needs valgrind: apt-get install valgrind")
    with Server.temporary(binaries=stage.binaries) as server:
        migrate(server.dsn())
        _fill(server)
        return {
            f"{name}_instructions": _count(valgrind, server, statement) / jobs
            for name, (jobs, statement) in STATEMENTS.items()
        }


def _fill(server: Server) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        for queue in ("q", "limited"):
            conn.execute("select dibs.set_queue(%s, '{\"lease\": 3600}')", (queue,))
            jobs = json.dumps([{"queue": queue, "kind": queue, "payload": json.loads(PAYLOAD)}] * 1000)
            for _ in range(JOBS // 1000):
                conn.execute("select count(*) from dibs.enqueue_many(%s::jsonb)", (jobs,))
        conn.execute("select dibs.set_limit(kind => 'limited', concurrency => 1000000)")
        conn.execute("vacuum (analyze)")
    server.stop("fast")


def _count(valgrind: str, server: Server, statement: str) -> float:
    """Instructions of one call, once its plans are made: what twice as many calls cost more."""
    few, many = (_run(valgrind, server, statement, calls) for calls in (CALLS, 2 * CALLS))
    return (many - few) / CALLS


def _run(valgrind: str, server: Server, statement: str, calls: int) -> int:
    counted = [valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null"]
    program = [str(server.binaries["postgres"]), "--single", "-D", str(server.data_dir), "dibs"]
    done = account_for(server.data_dir).run([*counted, *program], input=(statement + "\n") * calls)
    found = re.search(r"Collected : (\d+)", done.stdout)
    if found is None or "ERROR" in done.stdout:
        sys.exit(f"callgrind did not count {statement}:\n{done.stdout[-2000:]}")
    return int(found[1])
