"""Groups of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.db.calls.call import Call, first, nothing, to_json
from dibs.info import GroupInfo

if TYPE_CHECKING:
    from dibs.policy import GroupPolicy


def set_group(queue: str, name: str | None, policy: GroupPolicy) -> Call[None]:
    """Set weight and limits of a group, or of all groups of a queue."""
    return Call("select dibs.set_group(%s, %s, %s::jsonb)", (queue, name, to_json(policy)), nothing)


def drop_group(queue: str, name: str | None) -> Call[bool]:
    """Drop the settings of a group; false if it had none."""
    return Call("select dibs.drop_group(%s, %s)", (queue, name), first, repeatable=False)


def repair_groups() -> Call[int]:
    """Repair groups after the clock was set back. Return how many needed it."""
    return Call("select dibs.repair_groups()", (), first)


def groups(queue: str, most: int) -> Call[list[GroupInfo]]:
    """List the groups that run or wait most, have waited longest, or are noisy."""
    names = ", ".join(f'"{name}"' for name in GroupInfo.__struct_fields__)
    return Call(
        f"select {names} from dibs.groups(%s, %s)",
        (queue, most),
        lambda rows: [GroupInfo(*row) for row in rows],
        slow=True,
    )
