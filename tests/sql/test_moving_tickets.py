"""The rules for functions that move tickets (src/dibs/sql/README.md, "Moving tickets"), read from their texts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SQL = Path(__file__).parents[2] / "src/dibs/sql"
TICKETS = "(?:ready|blocked|lease|dead)"
FUNCTION = re.compile(r"create (?:or replace )?function dibs\.(\w+)\(.*?(?:\n\$\$;|\nend;|;\n\n)", re.DOTALL)
INSERT = re.compile(rf"insert into dibs\.{TICKETS}\b")
DELETE = re.compile(rf"delete from dibs\.{TICKETS}\b")

MAKERS = {"enqueue", "_insert_batch", "_insert_bare_jobs"}
"""Functions that make tickets: nothing was deleted for them."""

TAKERS = {
    "_take_priority": "claim",
    "_take_newest": "claim",
    "_take_pointers": "claim",
    "_take_tickets": "claim",
    "_admit_ungrouped": "_block_tickets",
    "_withdraw_tickets": "_return_tickets, _end_waiting_jobs and _undo_retry; purge forgets the jobs",
    "_undo_cancel": "_return_tickets",
    "_retry_jobs": "_return_tickets",
    "_complete_one": "the run has succeeded",
    "complete_many": "the runs have succeeded",
    "delete": "the jobs are forgotten",
    "_delete_past_retention": "the jobs are forgotten",
    "_drop_day": "the jobs are dropped with their day",
}
"""Functions that delete tickets and insert none, and who puts the tickets somewhere, or why nobody has to."""


def functions() -> Iterator[tuple[str, str]]:
    """Every function's name and its text without comments and strings."""
    for path in sorted(SQL.rglob("*.sql")):
        text = re.sub(r"--[^\n]*|'(?:[^']|'')*'", "''", path.read_text(encoding="utf-8"))
        for found in FUNCTION.finditer(text):
            yield found[1], found[0]


def part(statement: str, start: int) -> str:
    """The statement from a place on, as far as its parentheses go."""
    depth = 0
    for at in range(start, len(statement)):
        depth += {"(": 1, ")": -1}.get(statement[at], 0)
        if depth < 0:
            return statement[start:at]
    return statement[start:]


def source(insert: str) -> str:
    """The source of an insert: the text behind its outermost FROM."""
    depth = 0
    for found in re.finditer(r"[()]|\bfrom\b", insert):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if found[0] == "from" and depth == 0:
            return " ".join(insert[found.start() :].split("returning")[0].split())
    return ""


def flaws(name: str, text: str) -> Iterator[str]:
    """The rules that the inserts of tickets in a function break."""
    statements = text.split(";")
    for statement in statements:
        if DELETE.search(statement) and "dibs._ticket" in statement and "_return_tickets(" in text:
            read = source(statement[statement.rfind("\n  select array_agg(") :])
            if not re.fullmatch(r"from gone as \w+", read):
                yield f"{name} hands over {read!r} instead of all that it deletes"
        for found in INSERT.finditer(statement):
            read = source(part(statement, found.start()))
            if re.search(r"\bjoin (?!unnest\()", read):
                yield f"{name} joins {read!r}: a row that is gone would lose the ticket"
            if re.search(r"\bwhere (?!g\.dead_state is (not )?null$)", read):
                yield f"{name} filters {read!r}: what is left out would be lost"
            if DELETE.search(statement):
                if not re.match(r"from gone as \w+\b", read):
                    yield f"{name} deletes and inserts in one statement, but reads {read!r}"
            elif "_check_moved(" not in text:
                yield f"{name} does not count what it inserts of what another statement deleted"


def test_what_was_deleted_is_inserted_whole_or_not_at_all() -> None:
    assert [flaw for name, text in functions() if name not in MAKERS for flaw in flaws(name, text)] == []


def test_every_function_that_only_deletes_tickets_is_known() -> None:
    only = {name for name, text in functions() if DELETE.search(text) and not INSERT.search(text)}
    assert only == set(TAKERS)


def test_the_rules_read_all_functions() -> None:
    moving = {name for name, text in functions() if INSERT.search(text)}
    assert moving >= MAKERS | {
        "claim",
        "_claim_one",
        "_block_tickets",
        "_unblock_tickets",
        "_end_runs",
    }
    assert moving >= {"_return_tickets", "_end_waiting_jobs", "_undo_retry", "_park", "_keep_fitting"}


BAD = {
    "hands over": "with gone as (delete from dibs.dead as d returning d.*)\n"
    "  select array_agg(dibs._ticket(id => g.id))"
    " into v_tickets from gone as g where g.n > 0; perform dibs._return_tickets(v_tickets, at);",
    "joins": "insert into dibs.blocked (id) select t.id from unnest(a) as t join dibs.limit_rule as b on b.id = t.n;"
    " perform dibs._check_moved(1, 2);",
    "filters": "insert into dibs.ready (id) select t.id from unnest(a) as t where t.n > 0;"
    " perform dibs._check_moved(1, 2);",
    "does not count": "insert into dibs.dead (id) select t.id from unnest(a) as t;",
    "but reads": "with gone as (delete from dibs.ready as r returning r.*) insert into dibs.dead (id) select r.id"
    " from dibs.ready as r;",
}


@pytest.mark.parametrize("flaw", BAD)
def test_the_rules_find_what_breaks_them(flaw: str) -> None:
    assert [found for found in flaws("f", BAD[flaw]) if flaw in found]
