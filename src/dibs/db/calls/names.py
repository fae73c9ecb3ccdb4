"""Names that begin with a prefix: for completion in shells, and for abbreviated ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, LiteralString

from dibs.db.calls.call import Call, Row

if TYPE_CHECKING:
    from uuid import UUID

MOST = 100


def _named(statement: LiteralString, beginning: str) -> Call[list[str]]:
    return Call(f"{statement} limit {MOST}", (beginning,), lambda rows: [row[0] for row in rows])


def queues(beginning: str) -> Call[list[str]]:
    """Queues."""
    return _named("select name from dibs.queues where starts_with(name, %s) order by name", beginning)


def kinds(beginning: str) -> Call[list[str]]:
    """Kinds that were run, or that a worker has registered."""
    return _named(
        "select k.kind from (select kind from dibs.totals union select kind from dibs.tasks) as k"
        " where starts_with(k.kind, %s) order by k.kind",
        beginning,
    )


def schedules(beginning: str) -> Call[list[str]]:
    """Schedules."""
    return _named("select name from dibs.schedules where starts_with(name, %s) order by name", beginning)


def ids(beginning: str) -> Call[list[str]]:
    """The newest jobs."""
    return _named(
        "select j.id::text from (select id from dibs.jobs limit 1000) as j where starts_with(j.id::text, %s)", beginning
    )


def ids_between(first: UUID, last: UUID, limit: int) -> Call[list[UUID]]:
    """Jobs by a range of ids."""

    def read(rows: list[Row]) -> list[UUID]:
        return [row[0] for row in rows]

    return Call("select id from dibs.jobs where id >= %s and id <= %s limit %s", (first, last, limit), read)
