"""Writes docs/reference/sql*.md from an installed database; ``--check`` only says whether they are up to date."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from dibs import sql
from dibs.db.schema import migrate
from dibs.embedded import UNSAFE_FAST, Server
from dibs.errors import BY_SQLSTATE

REFERENCE = Path(__file__).resolve().parent.parent / "docs/reference"
PROTOCOL = "Worker protocol: "
"""The comment of a function that is called by workers, and not by people, begins with this."""
CORE = Path(sql.__file__).parent
FIRST = ("jobs", "claiming", "queues", "groups", "limits", "shards", "schedules")
"""The rooms a reader looks for first; the others follow by name."""
ROLES = ("producer", "worker", "observer", "admin")

FUNCTIONS = """
select p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), p.proretset,
  coalesce(obj_description(p.oid, 'pg_proc'), ''), pg_get_functiondef(p.oid),
  array(
    select jsonb_build_array(a.name, format_type(a.type, null))
    from unnest(p.proargnames, p.proallargtypes, p.proargmodes) with ordinality as a (name, type, mode, n)
    where a.mode in ('o', 't') order by a.n) || array(
    select jsonb_build_array(a.attname, format_type(a.atttypid, null))
    from pg_type as t join pg_attribute as a on a.attrelid = t.typrelid
    where t.oid = p.prorettype and a.attnum > 0 order by a.attnum),
  array(
    select r from unnest(%s::text[]) as r where has_function_privilege('dibs_' || r, p.oid, 'execute'))
from pg_proc as p where p.pronamespace = 'dibs'::regnamespace and p.prokind <> 'a' order by p.proname, 2
"""
RELATIONS = """
select c.relname, coalesce(obj_description(c.oid, 'pg_class'), ''),
  array(
    select jsonb_build_array(a.attname, format_type(a.atttypid, a.atttypmod))
    from pg_attribute as a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped order by a.attnum)
from pg_class as c
where c.relnamespace = 'dibs'::regnamespace and c.relkind = any (%s) and not c.relispartition
order by c.relname
"""
OPENING = """\
# SQL reference

<!-- Written by tools/sqlref.py from an installed database: change the SQL's comments and run `make docs`. -->

Every verb, view and table of the schema `dibs`. [Using dibs from SQL](../use/sql.md) shows how they go together. The
functions that only workers call are on another page: [the worker protocol](sql-protocol.md).

The functions are the API. Roles are granted functions and views, never tables. P, W, O and A stand for the roles
`dibs_producer`, `dibs_worker`, `dibs_observer` and `dibs_admin`; the schema's owner may call everything.

What a function raises by itself is listed with it, as [SQLSTATEs](errors.md). Three more can come from almost any
of them: `23514` when a value breaks a named constraint, a code of class `22` when a value cannot be read, and `42501`
when the role may not call the function.
"""


PROTOCOL_OPENING = """\
# SQL: the worker protocol

<!-- Written by tools/sqlref.py from an installed database: change the SQL's comments and run `make docs`. -->

The functions a worker calls to register, to wait for jobs, to park them, to run schedules and to deliver messages. You
need them only to write a worker in another language. They may change between minor versions; the functions of the
[SQL reference](sql.md) do not. P, W, O and A stand for the roles `dibs_producer`, `dibs_worker`, `dibs_observer` and
`dibs_admin`.
"""


@dataclass(frozen=True)
class Function:
    name: str
    arguments: str
    result: str
    many: bool
    comment: str
    body: str
    columns: list[tuple[str, str]]
    roles: list[str]

    @property
    def inputs(self) -> list[str]:
        """The arguments one gives, without those that come back."""
        given = re.split(r", (?=\w+ |OUT )", self.arguments)
        return [plain(a) for a in given if a and not a.startswith("OUT ")]

    @property
    def signature(self) -> str:
        one_line = f"dibs.{self.name}({', '.join(self.inputs)})"
        if len(one_line) <= 100:
            return one_line
        return f"dibs.{self.name}(\n" + ",\n".join(f"  {a}" for a in self.inputs) + ")"

    @property
    def is_protocol(self) -> bool:
        return self.comment.startswith(PROTOCOL)

    @property
    def about(self) -> str:
        """The comment as a sentence."""
        text = self.comment.removeprefix(PROTOCOL)
        return text[:1].upper() + text[1:]

    @property
    def initials(self) -> str:
        return " ".join(r[0].upper() for r in self.roles)


def rooms() -> dict[str, set[str]]:
    """The functions of each room of the SQL core, in the order of the page."""
    found: dict[str, set[str]] = {}
    for file in [*CORE.glob("schema/*.sql"), *CORE.glob("functions/*/*.sql")]:
        room = file.stem if file.parent.name == "schema" else file.parent.name
        made = re.findall(r"create (?:or replace )?function dibs\.(\w+)", file.read_text(encoding="utf-8"))
        found.setdefault(room, set()).update(made)
    return {name: found[name] for name in (*FIRST, *sorted(found.keys() - set(FIRST)))}


def room_section(room: str, functions: list[Function], states: dict[str, list[str]]) -> list[str]:
    lines = [f"## {room.replace('_', ' ').capitalize()}", "", "| function | what it does | roles |", "|---|---|---|"]
    lines += [f"| [{f.name}](#{f.name}) | {first_sentence(f.about)} | {f.initials} |" for f in functions]
    return [*lines, "", *(line for f in functions for line in function_section(f, states[f.name]))]


def raised(functions: list[Function]) -> dict[str, list[str]]:
    """The SQLSTATEs each function raises, itself or through those it calls."""
    own = {f.name: set(re.findall(r"'(DI\d{3}|42501)'", f.body)) for f in functions}
    called = {
        f.name: {c for c in re.findall(r"\bdibs\.(\w+)\(", f.body) if c in own and c != f.name} for f in functions
    }

    def closure(name: str) -> set[str]:
        seen, todo = {name}, [name]
        while todo:
            found = called[todo.pop()] - seen
            seen |= found
            todo += found
        return seen

    return {name: sorted(set().union(*(own[c] for c in closure(name)))) for name in own}


def plain(text: str) -> str:
    """Types by their short names, and defaults without casts."""
    text = text.replace("timestamp with time zone", "timestamptz").replace(" DEFAULT ", " default ")
    return re.sub(r"(NULL|'[^']*')::[\w .]+(\[\])?$", lambda found: found[1].replace("NULL", "null"), text)


def one_line(comment: str) -> str:
    return " ".join(comment.split())


def first_sentence(comment: str) -> str:
    return re.split(r"(?<=[.;:]) ", one_line(comment), maxsplit=1)[0].rstrip(".;:") or "…"


def columns_table(columns: list[tuple[str, str]]) -> list[str]:
    return ["| column | type |", "|---|---|", *(f"| `{name}` | {plain(kind)} |" for name, kind in columns), ""]


def function_section(function: Function, states: list[str]) -> list[str]:
    lines = [f"### {function.name}", "", "```text", function.signature, "```", ""]
    if function.comment:
        lines += [one_line(function.about), ""]
    if function.columns:
        lines += ["Returns rows:" if function.many else "Returns one row:", "", *columns_table(function.columns)]
    else:
        lines += ["Returns nothing." if function.result == "void" else f"Returns {plain(function.result)}.", ""]
    lines += [f"Roles: {', '.join(function.roles)}."]
    if states:
        lines += ["", "Raises: " + ", ".join(named(state) for state in states) + "."]
    return [*lines, ""]


def named(state: str) -> str:
    return f"`{state}` ({BY_SQLSTATE[state].__name__})" if state in BY_SQLSTATE else f"`{state}`"


def relation_section(name: str, comment: str, columns: list[tuple[str, str]]) -> list[str]:
    return [f"### {name}", "", one_line(comment), "", *columns_table(columns)]


def rooms_of(functions: list[Function], states: dict[str, list[str]]) -> list[str]:
    """A section for each room that has some of the functions."""
    lines = []
    for room, names in rooms().items():
        if here := [f for f in functions if f.name in names]:
            lines += room_section(room, here, states)
    return lines


def pages(functions: list[Function], views: list[Any], tables: list[Any]) -> dict[str, str]:
    """The text of each page, by its file."""
    public = [f for f in functions if f.roles]
    states = raised(functions)
    lines = [OPENING, *rooms_of([f for f in public if not f.is_protocol], states)]
    lines += ["## Views", "", "For `dibs_observer` and `dibs_admin`. They show no payloads and no tokens.", ""]
    for view in views:
        lines += relation_section(*view)
    lines += ["## Tables", "", "Only the schema's owner reads or writes them. The daily partitions of `job` and"]
    lines += ["`attempt` have the columns of their parents.", ""]
    for table in tables:
        lines += relation_section(*table)
    protocol = [PROTOCOL_OPENING, *rooms_of([f for f in public if f.is_protocol], states)]
    return {
        name: "\n".join(text).rstrip() + "\n" for name, text in {"sql.md": lines, "sql-protocol.md": protocol}.items()
    }


def reference(dsn: str) -> dict[str, str]:
    """The pages for a database with dibs installed."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("set search_path = pg_catalog")
        conn.execute("set intervalstyle = postgres")
        functions = [Function(*row) for row in conn.execute(FUNCTIONS, (list(ROLES),))]
        views, tables = (conn.execute(RELATIONS, (kinds,)).fetchall() for kinds in (["v"], ["r", "p"]))
        return pages(functions, views, tables)


def main() -> int:
    with Server.temporary(settings=UNSAFE_FAST) as server:
        migrate(server.dsn())
        text = reference(server.dsn())
    stale = False
    for name, page in text.items():
        target = REFERENCE / name
        if target.exists() and target.read_text(encoding="utf-8") == page:
            print(f"up to date: docs/reference/{name}")
        elif "--check" in sys.argv:
            print(f"stale: docs/reference/{name} does not match the SQL; run `make docs`")
            stale = True
        else:
            target.write_text(page, encoding="utf-8")
            print(f"wrote: docs/reference/{name}")
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
