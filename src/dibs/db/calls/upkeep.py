"""The upkeep: expired leases, expired jobs, partitions and repairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dibs.db.calls.call import Call, Row, first
from dibs.db.calls.schedules import ToRead  # noqa: TC001 - msgspec reads it
from dibs.info import MadeDay, Pruned, Rescued
from dibs.states import State

if TYPE_CHECKING:
    from uuid import UUID


class Step(msgspec.Struct, frozen=True):
    """The outcome of a step: ``done``, ``early``, ``busy`` or ``failed``. Ask again in ``wait`` seconds."""

    outcome: str
    counts: dict[str, int]
    more: bool
    wait: float
    cron: list[ToRead]
    failures: int
    error: str | None


def do_chore(name: str, force: bool) -> Call[Step]:
    """Do a step of a chore, unless another does it or it is not due."""

    def read(rows: list[Row]) -> Step:
        return msgspec.convert(dict(zip(Step.__struct_fields__, rows[0], strict=True)), Step)

    return Call(
        "select outcome, counts, more, extract(epoch from wait)::float8, cron, coalesce(failures, 0), error"
        " from dibs.do_chore(%s, %s)",
        (name, force),
        read,
        slow=name not in {"rescue", "schedule"},
    )


def rescue(max: int) -> Call[list[Rescued]]:
    """Take back leases that were not renewed."""
    return Call(
        "select id, state from dibs.rescue(%s)", (max,), lambda rows: [Rescued(id, State(state)) for id, state in rows]
    )


def expire(chunk: int, after: UUID) -> Call[tuple[int, UUID | None]]:
    """End waiting jobs past their time, a chunk at a time."""
    return Call(
        "select expired, next from dibs.expire(%s, %s)",
        (chunk, after),
        lambda rows: (rows[0][0], rows[0][1]),
        slow=True,
    )


def repair_jobs(after: UUID | None) -> Call[tuple[int, UUID | None]]:
    """Restore jobs that lost their tickets, a step at a time."""
    return Call(
        "select restored, next from dibs.repair_jobs(after => %s)",
        (after,),
        lambda rows: (rows[0][0], rows[0][1]),
        slow=True,
    )


def make_days(ahead: int) -> Call[list[MadeDay]]:
    """Make the days' partitions ahead of time."""
    return Call(
        "select name, outcome from dibs.make_days(%s)",
        (ahead,),
        lambda rows: [MadeDay(*row) for row in rows],
        slow=True,
    )


def prune(max: int) -> Call[list[Pruned]]:
    """Drop old days."""
    return Call(
        "select name, outcome, trimmed from dibs.prune(%s)",
        (max,),
        lambda rows: [Pruned(*row) for row in rows],
        slow=True,
    )


def days_due() -> Call[int]:
    """Count the days that every queue's retention has passed."""
    return Call(
        "select count(*) from (select 'dibs.job', max(retention) from dibs.queues"
        " union all select 'dibs.attempt', max(history_retention) from dibs.queues) as p (parent, keep)"
        " join pg_inherits as i on i.inhparent = p.parent::regclass join pg_class as c on c.oid = i.inhrelid"
        " where c.relname ~ '_[0-9]{8}$'"
        " and to_date(right(c.relname, 8), 'YYYYMMDD') + 1 <= (dibs.now() - p.keep) at time zone 'UTC'",
        (),
        first,
    )


def forget() -> Call[int]:
    """Delete old hints and workers."""
    return Call("select dibs.forget()", (), first, slow=True)
