"""Errors that calls may raise here, each with its reason. Any other is a finding."""

from __future__ import annotations

KILLED = {"57P01": "the killer ended the backend"}

LOST = {"DI001": "the lease ran out, or the job was rescued"}
GONE = {"DI011": "the queue was dropped or is not made yet"}
SHARDED = {"DI010": "the queue is sharded and takes no limit or policy"}
FULL = {"DI041": "the queue or the group is full", "DI040": "another job holds the key"}

HELD = {"55P03": "a claim keeps a group locked for longer than it waits"}
EXPECTED: dict[str, dict[str, str]] = {
    "enqueue": FULL,
    "complete": LOST,
    "fail": LOST,
    "release": LOST,
    "snooze": LOST,
    "park": LOST,
    "extend": LOST,
    "report": LOST,
    "claim shard": {"DI060": "another worker holds it, or the holder before still runs jobs"},
    "drain shard": {"DI060": "the hold has run out"},
    "set_limit": SHARDED,
    "drop_limit": {"DI030": "there is no such limit"} | GONE,
    "set_group": SHARDED | HELD,
    "drop_group": GONE | HELD,
    "set_queue": {},
    "pause": GONE,
    "resume": GONE,
    "cancel": {"DI002": "purged or deleted", "DI003": "it has ended"},
    "cancel_key": GONE,
    "cancel_where": GONE,
    "edit": {"DI002": "purged or deleted", "DI003": "it has succeeded", "DI004": "it runs"},
    "move": GONE,
    "retry": GONE,
    "purge": GONE,
    "delete": GONE,
    "find": GONE,
    "clone": {"DI002": "purged or deleted", "DI011": "its queue was dropped"} | FULL,
    "drop_queue": {"DI062": "it has jobs", "55P03": "somebody uses a queue for longer than it waits"} | GONE,
    "chore": {"55P03": "a chore waits a second for a lock"},
}
"""By verb."""

OLD_SNAPSHOT = {"40001": "a snapshot of REPEATABLE READ is older than a change"}


def why_expected(verb: str, code: str | None, *, old_snapshot: bool = False) -> str | None:
    """Why a verb may raise that, or nothing if it must not."""
    reasons = KILLED | EXPECTED.get(verb, {}) | (OLD_SNAPSHOT if old_snapshot else {})
    return reasons.get(code or "")
