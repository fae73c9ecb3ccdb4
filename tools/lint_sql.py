"""Looks for what must not be in the SQL: squawk on the tables, and rules of our own by reading the files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
SQL = ROOT / "src/dibs/sql"

NOT_FOR_US = {
    "require-lock-timeout": "the install script sets lock_timeout once, before the first migration",
    "require-statement-timeout": "a migration is as long as it is; what others wait for is bounded by lock_timeout",
    "ban-create-domain-with-constraint": "backoff is one value in queue and in job; a domain checks it once for both",
    "prefer-bigint-over-int": "queue numbers and run counts are small, and narrow rows are the point of the hot tables",
    "prefer-bigint-over-smallint": "a priority is 0 to 10 and attempts end at 10,000",
}
"""Rules of squawk that are off, each with its reason."""

DYNAMIC = {"_days.sql", "grants.sql", "plans.sql", "run_function.sql"}
"""The files that may build a statement as text: names of partitions, roles and functions cannot be parameters."""

HOT = {"enqueue", "claim", "extend", "complete", "fail", "snooze", "release", "cancel"}
"""Verbs of the hot path: an EXCEPTION block there costs a subtransaction for each call."""

GUARDS = {"_bounds.sql", "_unreadable.sql", "_in_flight.sql", "_lock.sql"}
"""Files where it stands beside the path: for too large values, after an error, for a new limit, for a locked ticket."""

FUNCTION = re.compile(r"create (?:or replace )?(?:function|procedure) dibs\.(\w+)\s*\(", re.IGNORECASE)
BODY = re.compile(r"\bas \$|\bbegin atomic\b|^return\b", re.IGNORECASE | re.MULTILINE)
TABLE = re.compile(r"create (?:table|domain)(?: if not exists)? dibs\.(\w+)(.*?);", re.IGNORECASE | re.DOTALL)
INDEX = re.compile(r"create (?:unique )?index(?: concurrently)? (\w+) on dibs\.(\w+)", re.IGNORECASE)

Finding = tuple[Path, int, str]


def bare(text: str) -> str:
    """The text with comments and quoted strings emptied, line for line."""

    def empty(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    return re.sub(r"--[^\n]*|'(?:[^']|'')*'", empty, text)


def line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def dynamic_statements(path: Path, text: str) -> Iterator[Finding]:
    if path.name in DYNAMIC:
        return
    for found in re.finditer(r"\bexecute\s+(?!function\b|procedure\b|on\b)", bare(text), re.IGNORECASE):
        yield (
            path,
            line(text, found.start()),
            "builds a statement as text; only partitions, roles and allowed functions need that",
        )


def is_hot(path: Path) -> bool:
    return path.stem in HOT or (path.stem.startswith("_") and path.name not in DYNAMIC)


def exception_blocks(path: Path, text: str) -> Iterator[Finding]:
    if not is_hot(path) or path.name in GUARDS:
        return
    for found in re.finditer(r"(?<!raise )\bexception\s+when\b", bare(text), re.IGNORECASE):
        yield path, line(text, found.start()), "an EXCEPTION block in a hot function costs an xid for each call"


def uncommented_functions(path: Path, text: str) -> Iterator[Finding]:
    for found in FUNCTION.finditer(bare(text)):
        if not re.search(rf"comment on (?:function|procedure) dibs\.{found[1]}\b", text, re.IGNORECASE):
            yield path, line(text, found.start()), f"dibs.{found[1]} has no comment"


def loose_definers(path: Path, text: str) -> Iterator[Finding]:
    plain = bare(text)
    for found in FUNCTION.finditer(plain):
        head = BODY.split(plain[found.start() :], maxsplit=1)[0]
        if "security definer" not in head.lower():
            continue
        if not re.search(r"set search_path = [\w, ]*\bpg_temp\s*$", head, re.IGNORECASE | re.MULTILINE):
            yield path, line(text, found.start()), f"dibs.{found[1]} does not pin a search_path that ends in pg_temp"


def foreign_names(path: Path, text: str) -> Iterator[Finding]:
    """Names of constraints and indexes that do not begin with their table's."""
    plain = bare(text)
    for table in TABLE.finditer(plain):
        for found in re.finditer(r"\bconstraint (\w+)", table[2], re.IGNORECASE):
            if not found[1].startswith(f"{table[1]}_"):
                yield path, line(text, table.start(2) + found.start()), f"{found[1]} is of {table[1]}: say so first"
    for found in INDEX.finditer(plain):
        if not found[1].startswith(f"{found[2]}_"):
            yield path, line(text, found.start()), f"{found[1]} is of {found[2]}: say so first"


CHECKS = (dynamic_statements, exception_blocks, uncommented_functions, loose_definers, foreign_names)


def own_findings() -> Iterator[str]:
    for path in sorted(SQL.rglob("*.sql")):
        text = path.read_text(encoding="utf-8")
        for check in CHECKS:
            for where, number, what in check(path, text):
                yield f"{where.relative_to(ROOT)}:{number}: {what}"


def squawk_findings() -> list[str]:
    command = [
        str(Path(sys.executable).parent / "squawk"),
        "--pg-version=15.0",
        "--assume-in-transaction",
        "--reporter=gcc",
        "--include=require-table-schema",
        f"--exclude={','.join(NOT_FOR_US)}",
        *map(str, sorted([*SQL.glob("schema/*.sql"), *SQL.glob("migrations/*.sql")])),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    said = [told.replace(f"{ROOT}/", "") for told in done.stdout.splitlines() if told.strip()]
    return said or ([f"squawk: {done.stderr.strip() or done.returncode}"] if done.returncode else [])


def main() -> int:
    found = [*squawk_findings(), *own_findings()]
    print("\n".join([*found, f"lint_sql: {len(found)} findings"]))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
