"""Workers, and the tasks they have registered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dibs.db.calls.call import Call, columns, first, nothing, one_answer, to_json
from dibs.info import TaskInfo, WorkerInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from dibs.states import Answer


def register_worker(name: str, facts: Mapping[str, Any], kinds: Sequence[str] | None = None) -> Call[tuple[UUID, int]]:
    """Register the start of a process, and the kinds it runs. Return its secret, and its public number."""
    return Call(
        "select worker, number from dibs.register_worker(%s, %s::jsonb, %s::text[])",
        (name, to_json(dict(facts)), None if kinds is None else list(kinds)),
        lambda rows: (rows[0][0], rows[0][1]),
    )


def beat_worker(
    worker: UUID, kinds: Sequence[str] | None = None, cpu: float | None = None, memory: int | None = None
) -> Call[bool]:
    """Send a worker's heartbeat, and its kinds if they have changed. Return True if it is asked to stop."""
    sent = None if kinds is None else list(kinds)
    return Call("select dibs.beat_worker(%s, %s::text[], %s::real, %s::bigint)", (worker, sent, cpu, memory), first)


def stop_worker(number: int) -> Call[Answer]:
    """Ask a worker to stop."""
    return Call("select dibs.stop_worker(%s)", (number,), one_answer)


def retire_worker(worker: UUID) -> Call[None]:
    """Remove a worker from the registry."""
    return Call("select dibs.retire_worker(%s)", (worker,), nothing)


def workers() -> Call[list[WorkerInfo]]:
    """List the processes that registered."""
    return Call(
        f"select {columns(WorkerInfo)} from dibs.workers order by id",
        (),
        lambda rows: [WorkerInfo(*row) for row in rows],
    )


def set_tasks(tasks: Sequence[Mapping[str, Any]]) -> Call[int]:
    """Register the tasks of a worker."""
    return Call("select dibs.set_tasks(%s::jsonb)", (to_json(list(tasks)),), first)


def find_task(kind: str) -> Call[dict[str, Any]]:
    """Return the registered facts of a task."""
    names = ("queue", "arguments", "options")
    return Call(
        f"select {', '.join(names)} from dibs.find_task(%s)",
        (kind,),
        lambda rows: dict(zip(names, rows[0], strict=True)),
    )


def tasks() -> Call[list[TaskInfo]]:
    """List the tasks that workers have registered."""
    return Call(
        f"select {columns(TaskInfo)} from dibs.tasks order by kind",
        (),
        lambda rows: [TaskInfo(*row) for row in rows],
    )
