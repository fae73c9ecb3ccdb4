"""Ten million jobs kept in ten days, a million of them waiting: every look, every step, and the hot verbs.

Hot verbs are measured in turns with an empty database. ``--scale 0.01`` takes a hundredth of the jobs. A database given
by ``--dsn`` that has jobs already is measured as it is, and is changed by it.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from typing import TYPE_CHECKING, Any

import psycopg

from bench.stage import script
from bench.world import build
from dibs.db import calls
from dibs.db.admin import at_database, create_database, drop_database
from dibs.db.schema import migrate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.stage import Stage
    from dibs.db.calls import Call

    Connection = psycopg.Connection[Any]

WANTED = {"hot_ratio": ("≥", 0.85), "slowest_look_ms": ("≤", 50)}
JOBS = 10_000_000
ROUNDS = 7
CALLS = 200
LOOKS = 5

VERBS = {
    "enqueue": "select dibs.enqueue('bulk', 'k', '{\"user_id\": 1}')",
    "enqueue_many": "select count(*) from dibs.enqueue_many(%(batch)s)",
    "claim": "select id, token from dibs.claim('{bulk}')",
    "claim_many": "select id, token from dibs.claim('{bulk}', 10)",
    "complete": "select from dibs.complete_many(%(ids)s, %(tokens)s)",
}
BATCH = json.dumps([{"queue": "bulk", "kind": "k", "payload": {"user_id": n}} for n in range(10)])

LISTS: dict[str, dict[str, Any]] = {
    "the newest jobs": {},
    "the dead": {"states": ["failed", "exhausted", "expired", "cancelled"]},
    "what runs": {"states": ["running"]},
    "ready in a large queue": {"queue": "bulk", "states": ["ready"]},
    "ready in a small queue": {"queue": "small-3", "states": ["ready"]},
    "dead in a small queue": {"queue": "small-2", "states": ["exhausted"]},
    "a kind that nobody has": {"kind": "none"},
    "a reason that nothing has": {"reason": "none%"},
    "succeeded in a small queue": {"queue": "small-3", "states": ["succeeded"]},
}

STEPS = {
    "retry": """select from dibs.retry('{"queue": "mail"}', dry_run => true)""",
    "retry of all": "select from dibs.retry('{}', dry_run => true)",
    "cancel": """select from dibs.cancel_where('{"queue": "small-5"}', dry_run => true)""",
    "delete": """select from dibs.delete('{"queue": "small-5"}', dry_run => true)""",
    "expire": "select from dibs.expire()",
    "prune": "select from dibs.prune()",
    "roll_up": "select from dibs.roll_up()",
}


def run(stage: Stage) -> dict[str, Any]:
    with stage.connect() as conn, _empty(stage.dsn) as other:
        if not conn.execute("select from dibs.ready limit 1").fetchall():
            build(conn, int(JOBS * stage.scale))
        looks = {name: _time(conn, *look) for name, look in _looks().items()}
        steps = {name: _time(conn, statement) for name, statement in STEPS.items()}
        ratios = _compare(conn, other)
    return {
        "hot_ratio": min(ratios.values()),
        **{f"{name}_ratio": ratio for name, ratio in ratios.items()},
        "slowest_look_ms": max(looks.values()),
        "slowest_step_ms": max(steps.values()),
        "looks": sorted(((round(ms, 2), name) for name, ms in looks.items()), reverse=True),
        "steps": sorted(((round(ms, 2), name) for name, ms in steps.items()), reverse=True),
    }


@contextlib.contextmanager
def _empty(dsn: str) -> Iterator[Connection]:
    """A database beside the large one, with nothing in it."""
    admin, name = at_database(dsn, "postgres"), "size_empty"
    create_database(admin, name)
    try:
        migrate(at_database(dsn, name))
        with psycopg.connect(at_database(dsn, name), autocommit=True) as conn:
            yield conn
    finally:
        drop_database(admin, name)


def _looks() -> dict[str, tuple[str, tuple[Any, ...]]]:
    """The reads of people, metrics and dashboard."""
    found: dict[str, Call[Any]] = {
        "depth": calls.queues.depth("bulk"),
        "depth of a small queue": calls.queues.depth("small-1"),
        "depths": calls.queues.depths(),
        "drain estimate": calls.queues.drain_estimate("bulk", 300),
        "queues": calls.queues.queues(),
        "limits": calls.limits.limits(),
        "workers": calls.workers.workers(),
        "statistics": calls.statistics.statistics(None, None, ("queue", "kind"), 3600, None),
        "totals": calls.statistics.totals(None, None),
        "deliveries": calls.channels.deliveries(False, 20),
        **{name: calls.operate.find_jobs(filter, 20, None) for name, filter in LISTS.items()},  # type: ignore[arg-type]
    }
    return {name: (call.sql, call.args) for name, call in found.items()}


def _time(conn: Connection, statement: str, args: tuple[Any, ...] = ()) -> float:
    """Milliseconds of a statement in a session that has planned it."""
    spent = []
    for _ in range(LOOKS + 1):
        began = time.perf_counter()
        conn.execute(script(statement), args, prepare=True)
        spent.append(time.perf_counter() - began)
    return statistics.median(spent[1:]) * 1000


def _compare(large: Connection, empty: Connection) -> dict[str, float]:
    """Return the speed of each hot verb in the large database relative to the empty one."""
    spent: dict[Any, list[float]] = {(name, verb): [] for name in ("large", "empty") for verb in VERBS}
    for _ in range(ROUNDS + 1):
        for name, conn in (("large", large), ("empty", empty)):
            for verb, seconds in _round(conn).items():
                spent[name, verb].append(seconds)
    return {
        verb: statistics.median(spent["empty", verb][1:]) / statistics.median(spent["large", verb][1:])
        for verb in VERBS
    }


def _round(conn: Connection) -> dict[str, float]:
    """Some calls of each hot verb; how many seconds they took."""
    spent = dict.fromkeys(VERBS, 0.0)
    held: list[Any] = []
    for _ in range(CALLS):
        for verb, statement in VERBS.items():
            args = {"batch": BATCH, "ids": [row[0] for row in held], "tokens": [row[1] for row in held]}
            began = time.perf_counter()
            done = conn.execute(script(statement), {k: v for k, v in args.items() if f"%({k})s" in statement})
            spent[verb] += time.perf_counter() - began
            if verb.startswith("claim"):
                held += done.fetchall()
        held = []
    return spent
