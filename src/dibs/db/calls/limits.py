"""Limits of queues, kinds and resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.db.calls.call import Call, columns, first, nothing, to_json
from dibs.info import Limit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def set_limit(
    target: Mapping[str, str | None], concurrency: int | None, rate: float | None, burst: int | None
) -> Call[None]:
    """Limit a queue, a kind or a resource."""
    return Call(
        "select dibs.set_limit(%s, %s, %s, %s, %s, %s)",
        (target["queue"], target["kind"], target["resource"], concurrency, rate, burst),
        nothing,
        slow=True,
    )


def drop_limit(target: Mapping[str, str | None]) -> Call[bool]:
    """Drop a limit."""
    return Call(
        "select dibs.drop_limit(%s, %s, %s)",
        (target["queue"], target["kind"], target["resource"]),
        first,
        repeatable=False,
        slow=True,
    )


def declare_limits(limits: Sequence[tuple[str, int | None, float | None]]) -> Call[dict[str, str]]:
    """Declare the limits of kinds in the database. Without the right to set limits, only compare them."""
    sent = [{"kind": kind, "concurrency": concurrency, "rate": rate} for kind, concurrency, rate in limits]
    return Call(
        "select kind, answer from dibs.declare_limits(%s::jsonb)",
        (to_json(sent),),
        lambda rows: {row[0]: row[1] for row in rows},
        slow=True,
    )


def limits() -> Call[list[Limit]]:
    """List every limit and its use."""
    return Call(
        f"select {columns(Limit)} from dibs.limits order by scope, queue, name",
        (),
        lambda rows: [Limit(*row) for row in rows],
        slow=True,
    )


def limits_of(queue: str, most: int) -> Call[list[Limit]]:
    """List the limits that apply to jobs of a queue, those in use first, each with its first holders."""
    chosen = ", ".join(f"holders[1:{most:d}]" if name == "holders" else name for name in Limit.__struct_fields__)
    return Call(
        f"select {chosen} from dibs.limits where scope in ('kind', 'resource') or scope = 'queue' and queue = %s"
        " or scope = 'group' and queue = %s and name is null"
        f" order by scope <> 'queue', blocked + used desc, scope, name limit {most:d}",
        (queue, queue),
        lambda rows: [Limit(*row) for row in rows],
        slow=True,
    )


def repair_limits() -> Call[int]:
    """Give limits the units that they should have and lack. Return how many were given."""
    return Call("select dibs.repair_limits()", (), first)
