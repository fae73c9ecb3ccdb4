"""The doctor's checks from outside: of this machine, this package, and the connection to the database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dibs import sql
from dibs.db.dsn import connect
from dibs.db.grants import check as find_faults
from dibs.db.pooler import pooler_mode
from dibs.db.schema import installed
from dibs.db.translate import translated
from dibs.info import SEVERITIES, Finding

if TYPE_CHECKING:
    import psycopg

    from dibs.db.pooler import Mode

MOST_OFF = 2.0
"""The most seconds by which this machine's clock may differ from the database's."""


def examine(dsn: str) -> list[Finding]:
    """Return all findings, worst first: of the database, and of the checks from outside."""
    with translated(), connect(dsn) as conn:
        found = [*_code(conn), *_clock(conn)]
        rows = conn.execute("select name, level, message, reason, fix, subject from dibs.doctor()").fetchall()
        found += [Finding(*row) for row in rows]
    found += [_fault(what, where) for what, where in find_faults(dsn)]
    found += _pooler(pooler_mode(dsn))
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.level))


def _code(conn: psycopg.Connection[Any]) -> list[Finding]:
    here = (sql.latest_version(), sql.digest())
    there = installed(conn)
    if there is None or there == here:
        return []
    what = f"version {there[0]}" if there[0] != here[0] else "the functions of another release"
    return [
        Finding(
            "code",
            "warning",
            f"the database has {what}; this package brings version {here[0]}",
            "Old and new code work side by side, but what is new here does not work yet.",
            "dibs migrate with the newest package that you use",
        )
    ]


def _clock(conn: psycopg.Connection[Any]) -> list[Finding]:
    before = datetime.now(UTC)
    row = conn.execute("select clock_timestamp()").fetchone()
    assert row
    middle = before + (datetime.now(UTC) - before) / 2
    off = (middle - row[0]).total_seconds()
    if abs(off) <= MOST_OFF:
        return []
    return [
        Finding(
            "clock",
            "warning",
            f"the clock of this machine is {abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} the database's",
            "Only the database's clock decides, so no job is harmed; but due times that code here computes are off.",
            "let NTP or chrony set both clocks",
        )
    ]


POOLERS: dict[Mode, Finding] = {
    "session": Finding(
        "pooler",
        "note",
        "a pooler in session mode is between here and the server",
        "Everything works. No ring is heard through it, so a worker that connects like this looks for jobs by polling.",
        "give workers a DSN of the server itself; clients that only enqueue may stay",
    ),
    "transaction": Finding(
        "pooler",
        "note",
        "a pooler in transaction mode is between here and the server",
        "Everything works. No ring is heard through it, so a worker that connects like this looks for jobs by polling,"
        " and what a session remembers of its queues is mixed up, so claims scan more.",
        "give workers a DSN of the server itself; clients that only enqueue may stay: docs/run/wakeups.md",
    ),
    "statement": Finding(
        "pooler",
        "error",
        "a pooler in statement mode is between here and the server",
        "It allows no transactions, which enqueueing of many jobs, the dashboard and your own code need.",
        "set pool_mode = transaction, or give a DSN of the server itself",
    ),
}
"""The reason and remedy of the finding about a pooler, by its mode."""


def _pooler(mode: Mode | None) -> list[Finding]:
    return [] if mode is None else [POOLERS[mode]]


def _fault(what: str, where: str) -> Finding:
    reason = "The grants are what keeps applications out of the tables, and each role to its own verbs."
    return Finding("grants", "error", f"{what}: {where}", reason, "dibs migrate --repair, and docs/run/security.md")
