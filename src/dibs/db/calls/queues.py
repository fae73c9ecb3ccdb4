"""Queues: their policies and depths."""

from __future__ import annotations

from dibs.db.calls.call import RENAMED, SPAN, Call, columns, first, in_seconds, nothing, to_json
from dibs.info import Depth, DrainEstimate, PriorityDepth, QueueInfo, Resumed, SettingInfo, WorkersWanted
from dibs.policy import QueuePolicy, Seconds, seconds


def set_queue(name: str, policy: QueuePolicy) -> Call[None]:
    """Make a queue, or change its policy."""
    return Call("select dibs.set_queue(%s, %s::jsonb)", (name, to_json(policy)), nothing)


def set_strict(strict: bool) -> Call[None]:
    """Set if enqueues to queues that do not exist are refused."""
    return Call("select dibs.set_strict(%s)", (strict,), nothing)


def pause(queue: str) -> Call[bool]:
    """Stop handing out a queue's jobs."""
    return Call("select dibs.pause(%s)", (queue,), first, repeatable=False)


def resume(queue: str, extend: Seconds | None) -> Call[Resumed]:
    """Hand out a queue's jobs again."""
    return Call(
        f"select paused_at, late, extended from dibs.resume(%s, {SPAN})",
        (queue, in_seconds(extend)),
        lambda rows: Resumed(*rows[0]),
        repeatable=False,
        slow=True,
    )


def queues() -> Call[list[QueueInfo]]:
    """List every queue and its policy."""
    return Call(
        f"select {columns(QueueInfo)} from dibs.queues order by name",
        (),
        lambda rows: [QueueInfo(*row) for row in rows],
    )


def queue(name: str) -> Call[QueueInfo | None]:
    """Return a queue and its policy, if it exists."""
    return Call(
        f"select {columns(QueueInfo)} from dibs.queues where name = %s",
        (name,),
        lambda rows: QueueInfo(*rows[0]) if rows else None,
    )


def queue_settings(queue: str) -> Call[list[SettingInfo]]:
    """List the settings of a queue, and the source of each value."""
    return Call(
        f"select {columns(SettingInfo)} from dibs.queue_settings(%s)",
        (queue,),
        lambda rows: [SettingInfo(*row) for row in rows],
    )


def depth_by_priority(queue: str) -> Call[list[PriorityDepth]]:
    """Count the waiting and running jobs of each priority."""
    return Call(
        f"select {columns(PriorityDepth)} from dibs.depth_by_priority(%s)",
        (queue,),
        lambda rows: [PriorityDepth(*row) for row in rows],
        slow=True,
    )


def depth(queue: str) -> Call[Depth]:
    """Count the jobs of a queue in each state."""
    return Call(f"select {columns(Depth)} from dibs.depth(%s)", (queue,), lambda rows: Depth(*rows[0]), slow=True)


def depths() -> Call[list[Depth]]:
    """Count the jobs of every queue in each state."""
    return Call(
        f"select {columns(Depth)} from dibs.depth() order by queue",
        (),
        lambda rows: [Depth(*row) for row in rows],
        slow=True,
    )


def drain_estimate(queue: str, span: Seconds) -> Call[DrainEstimate]:
    """Estimate when a queue will be empty."""
    return Call(
        f"select waiting, arriving, leaving, drained_in from dibs.drain_estimate(%s, {SPAN})",
        (queue, seconds(span)),
        lambda rows: DrainEstimate(*rows[0]),
        slow=True,
    )


def workers_wanted(
    queue: str | None, target: Seconds, concurrency: int | None, run_time: Seconds | None
) -> Call[list[WorkersWanted]]:
    """Compute how many workers a queue needs, or each queue."""
    return Call(
        f"select {columns(WorkersWanted, RENAMED)} from dibs.workers_wanted(%s, {SPAN}, %s, {SPAN})",
        (queue, seconds(target), concurrency, in_seconds(run_time)),
        lambda rows: [WorkersWanted(*row) for row in rows],
        slow=True,
    )
