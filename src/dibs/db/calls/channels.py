"""The calls of channels, supervisors and the error log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dibs.db.calls.call import Call, clean, first, nothing, to_json, to_jsonb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from dibs.job import Held


class Stage(NamedTuple):
    """The state of a job's delivery, and its details."""

    stage: str
    detail: dict[str, Any] | None


def _stage(rows: list[tuple[Any, ...]]) -> Stage:
    return Stage(*rows[0])


def begin_function(name: str) -> Call[None]:
    """Set a function's timeout for the next statements of the transaction."""
    return Call("select dibs.begin_function(%s)", (name,), nothing)


def run_function(name: str, payload: Any) -> Call[dict[str, Any]]:
    """Run an allowed function. Return its envelope."""
    return Call("select dibs.run_function(%s, %s::jsonb)", (name, to_json(payload)), first)


def run_job(job: Held, name: str, payload: Any) -> Call[dict[str, Any]]:
    """Run an allowed function and complete the job if it succeeds, both or neither."""
    return Call("select dibs.run_job(%s, %s, %s, %s::jsonb)", (job.id, job.token, name, to_json(payload)), first)


def run_handler(job: Held, name: str, payload: Any, *, result: Any, error: str | None) -> Call[dict[str, Any]]:
    """Call a handler with the outcome of a delivery, once. With an error the job fails, otherwise it succeeds."""
    return Call(
        "select dibs.run_handler(%s, %s, %s, %s::jsonb, %s::jsonb, %s)",
        (job.id, job.token, name, to_json(payload), to_jsonb(result), None if error is None else clean(error)),
        first,
    )


def delivery_stage(id: UUID) -> Call[Stage]:
    """Return the state of a delivery."""
    return Call("select stage, detail from dibs.delivery_stage(%s)", (id,), _stage)


def begin_delivery(job: Held, provider: str, handlers: Sequence[str]) -> Call[Stage]:
    """Mark that a message is about to be handed to a provider."""
    return Call(
        "select stage, detail from dibs.begin_delivery(%s, %s, %s, %s::text[])",
        (job.id, job.token, provider, list(handlers)),
        _stage,
    )


def record_delivery(job: Held, step: str, detail: Mapping[str, Any] | None) -> Call[None]:
    """Record how a send ended."""
    return Call(
        "select dibs.record_delivery(%s, %s, %s, %s::jsonb)", (job.id, job.token, step, to_jsonb(detail)), nothing
    )


def append_error(message: str, job: UUID | None, source: str) -> Call[int]:
    """Write an operational error into the log. If the answer is lost it is written again: better twice than never."""
    return Call("select dibs.append_error(%s, %s, %s)", (clean(message), job, source), first)


def allow_function(function: str, timeout: timedelta | None) -> Call[str]:
    """Let workers run a function."""
    if timeout is None:
        return Call("select dibs.allow_function(%s::regprocedure)", (function,), first)
    return Call("select dibs.allow_function(%s::regprocedure, %s)", (function, timeout), first)


def disallow_function(name: str) -> Call[bool]:
    """Take a function off the list; false if it was not on it."""
    return Call("select dibs.disallow_function(%s)", (name,), first, repeatable=False)


def set_error_retention(keep: timedelta) -> Call[None]:
    """Set how long the error log is kept."""
    return Call("select dibs.set_error_retention(%s)", (keep,), nothing)


def functions() -> Call[list[dict[str, Any]]]:
    """List the allowed functions."""
    return _rows("dibs.functions", ("name", "timeout", "owner", "allowed_at", "allowed_by", "flaw"), order="name")


def errors(
    job: UUID | None, source: str | None, since: datetime | None, before: int | None, limit: int
) -> Call[list[dict[str, Any]]]:
    """List the error log, newest first."""
    # The inner select takes the newest first, as the view has them: to sort there would read the whole log.
    newest = (
        "(select * from dibs.error_log where (%s::uuid is null or job_id = %s) and (%s::text is null or source = %s)"
        " and (%s::timestamptz is null or at >= %s) and (%s::bigint is null or id < %s) limit %s) as e"
    )
    args = (job, job, source, source, since, since, before, before, limit)
    return _rows(newest, ("id", "at", "source", "job_id", "queue", "kind", "message"), args, order="id desc")


DELIVERY = (
    "job_id", "kind", "provider", "sends", "interrupted", "sent_at", "accepted_at", "refused_at", "recorded_at", "step",
)  # fmt: skip


def deliveries(interrupted: bool, limit: int) -> Call[list[dict[str, Any]]]:
    """List deliveries, newest first."""
    where = "where interrupted > 0" if interrupted else ""
    return _rows(f"dibs.deliveries {where}", DELIVERY, order="sent_at desc nulls last, job_id desc", limit=limit)


def delivery_totals() -> Call[dict[str, int]]:
    """Count messages, their sends and interruptions. ``unrecorded`` ones have an answer that is not handed on yet."""
    totals = {
        "messages": "count(*)",
        "sends": "coalesce(sum(sends), 0)::bigint",
        "accepted": "count(accepted_at)",
        "refused": "count(refused_at)",
        "interrupted": "coalesce(sum(interrupted), 0)::bigint",
        "unrecorded": "count(*) filter (where step in ('accepted', 'refused'))",
    }
    return Call(
        f"select {', '.join(totals.values())} from dibs.deliveries",
        (),
        lambda rows: dict(zip(totals, rows[0], strict=True)),
    )


def processes(limit: int) -> Call[list[dict[str, Any]]]:
    """List supervised processes, and when each is checked next."""
    return _rows("dibs.supervised_processes", ("name", "queue", "job_id", "state", "due_at"), order="name", limit=limit)


def _rows(
    source: str, columns: Sequence[str], args: tuple[Any, ...] = (), *, order: str, limit: int | None = None
) -> Call[list[dict[str, Any]]]:
    """List rows of a source as dicts. ``args`` are those of the source; a limit of None is none."""
    return Call(
        f"select {', '.join(columns)} from {source} order by {order} limit %s",
        (*args, limit),
        lambda rows: [dict(zip(columns, row, strict=True)) for row in rows],
    )
