"""Operations on many jobs by filter, the audit, and groups of failures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

from dibs.db.calls.call import SPAN, Call, Row, columns, first, nothing, one_answer, to_json
from dibs.db.calls.jobs import summary
from dibs.info import JobSummary
from dibs.operation import ACTOR, Audit, Exported, FailureGroup, FailureHour, Found, JobFilter, Step, StillDead
from dibs.policy import moment, seconds
from dibs.states import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime, timedelta

    from dibs.operation import StepArgs
    from dibs.policy import Seconds


STEP = "matched, done, next, operation"
STEP_ARGS = "max => %s, after => %s, continues => %s, dry_run => %s"


def set_actor() -> list[Call[str]]:
    """Make the call that sets the actor until the transaction ends; none if there is no actor."""
    actor = ACTOR.get()
    return [] if actor is None else [Call("select set_config('dibs.actor', %s, true)", (actor,), first)]


def _filter(filter: JobFilter) -> str:
    for name in ("enqueued_after", "enqueued_before", "ended_after", "ended_before"):
        if filter.get(name) is not None:
            moment(name, filter[name])
    return to_json({name: value for name, value in filter.items() if value is not None})


def _step_call(
    sql: str, args: tuple[Any, ...], step: StepArgs, read: Callable[[list[Row]], Step] | None = None
) -> Call[Step]:
    """Make the call for a step. If it were sent twice it would change more jobs than asked for, unless it is dry."""
    return Call(sql, (*args, *step), read or _step, repeatable=step.dry_run, slow=True)


def _step(rows: list[Row]) -> Step:
    return Step(*rows[0])


def _retried(rows: list[Row]) -> Step:
    matched, done, next, operation, refused = rows[0]
    stay = tuple(StillDead(UUID(job["id"]), Answer(job["reason"])) for job in json.loads(refused))
    return Step(matched, done, next, operation, stay)


def delete(filter: JobFilter, args: StepArgs) -> Call[Step]:
    """Delete ended jobs."""
    return _step_call(f"select {STEP} from dibs.delete(%s::jsonb, {STEP_ARGS})", (_filter(filter),), args)


def purge(queue: str, args: StepArgs) -> Call[Step]:
    """Delete a queue's waiting jobs."""
    return _step_call(f"select {STEP} from dibs.purge(%s, {STEP_ARGS})", (queue,), args)


def move(filter: JobFilter, to: str, args: StepArgs) -> Call[Step]:
    """Put waiting and dead jobs into another queue."""
    return _step_call(f"select {STEP} from dibs.move(%s::jsonb, %s, {STEP_ARGS})", (_filter(filter), to), args)


def retry(filter: JobFilter, rate: float | None, delay: float, now: bool, args: StepArgs) -> Call[Step]:
    """Bring dead jobs back."""
    return _step_call(
        "select matched, done, next, operation, refused::text"
        f" from dibs.retry(%s::jsonb, rate => %s, delay => {SPAN}, now => %s, {STEP_ARGS})",
        (_filter(filter), rate, delay, now),
        args,
        _retried,
    )


def cancel_where(filter: JobFilter, reason: str, args: StepArgs) -> Call[Step]:
    """Cancel jobs by filter."""
    return _step_call(
        f"select {STEP} from dibs.cancel_where(%s::jsonb, %s, {STEP_ARGS})", (_filter(filter), reason), args
    )


def undo(operation: int, args: StepArgs) -> Call[Step]:
    """Undo an operation."""
    return _step_call(f"select matched, done, next, audit from dibs.undo(%s, {STEP_ARGS})", (operation,), args)


FIND = (
    "select f.looked, f.next, {} from dibs.find_jobs(%s::jsonb, %s, %s) as f"
    " left join lateral unnest(f.ids) with ordinality as k (id, n) on true"
    " left join lateral (select * from dibs.jobs as v where v.id = k.id offset 0) as j on true order by k.n"
)


def find_jobs(filter: JobFilter, limit: int, before: UUID | None) -> Call[Found]:
    """Look for jobs by filter, newest first."""

    def read(rows: list[Row]) -> Found:
        return Found([summary(row[2:]) for row in rows if row[2] is not None], *rows[0][:2])

    wanted = ", ".join(f"j.{name}" for name in JobSummary.__struct_fields__)
    return Call(FIND.format(wanted), (_filter(filter), limit, before), read, slow=True)


def count_jobs(filter: JobFilter, args: StepArgs) -> Call[Step]:
    """Count jobs by filter, newest first."""
    return Call(
        "select cardinality(ids), 0, next, null from dibs.find_jobs(%s::jsonb, %s, %s)",
        (_filter(filter), args.max, args.after),
        _step,
        slow=True,
    )


EXPORTED = (
    "id", "queue", "kind", "state", "priority", "enqueued_at", "due_at", "ended_at", "attempts", "max_attempts",
    "group", "reason", "progress",
)  # fmt: skip
"""The columns of a job that are exported, besides its payload."""
CARRIED = ("payload", "headers", "content_type", "body")
UNREADABLE = "(JSON that cannot be read)"
"""The text in place of JSON that Python cannot read."""


def export_page(filter: JobFilter, limit: int, before: UUID | None) -> Call[Exported]:
    """Return a page of jobs by filter, newest first, with the columns of an export."""

    def read(rows: list[Row]) -> Exported:
        return Exported([dict(zip(EXPORTED, row[2:], strict=True)) for row in rows if row[2] is not None], *rows[0][:2])

    wanted = ", ".join(f'j."{name}"' for name in EXPORTED)
    return Call(FIND.format(wanted), (_filter(filter), limit, before), read, slow=True)


def payloads(ids: Sequence[UUID]) -> Call[list[dict[str, Any]]]:
    """Return the payloads of the first of these jobs, as many as fit in one answer."""

    def read(rows: list[Row]) -> list[dict[str, Any]]:
        carried = ((_json(payload), _json(headers), *rest) for payload, headers, *rest in rows)
        return [dict(zip(CARRIED, row, strict=True)) for row in carried]

    return Call(
        "select payload::text, headers::text, content_type, body from dibs.payloads(%s)", (list(ids),), read, slow=True
    )


def _json(text: str | None) -> Any:
    """Read the JSON of one job. An unreadable one must not stop the export of the others."""
    try:
        return None if text is None else json.loads(text)
    except (RecursionError, ValueError):  # Nested too deeply, or a number with too many digits.
        return UNREADABLE


def clone(id: UUID) -> Call[UUID]:
    """Enqueue a job once more."""
    return Call("select dibs.clone(%s)", (id,), first, repeatable=False)


def edit(id: UUID, changes: Mapping[str, Any]) -> Call[Answer]:
    """Change a job that waits or is dead."""
    if changes.get("due_at") is not None:
        moment("due_at", changes["due_at"])
    sent = dict(changes)
    if sent.get("delay") is not None:
        sent["delay"] = seconds(sent["delay"])
    return Call("select dibs.edit(%s, %s::jsonb)", (id, to_json(sent)), one_answer)


def drop_queue(name: str) -> Call[bool]:
    """Drop an empty queue."""
    return Call("select dibs.drop_queue(%s)", (name,), first, repeatable=False, slow=True)


def audits(limit: int, before: int | None) -> Call[list[Audit]]:
    """List the audit, newest first."""
    return Call(
        f"select {columns(Audit)} from dibs.audits where %s::bigint is null or operation < %s limit %s",
        (before, before, limit),
        lambda rows: [Audit(*row) for row in rows],
        slow=True,
    )


def set_audit_retention(keep: timedelta) -> Call[None]:
    """Set how long the audit is kept."""
    return Call("select dibs.set_audit_retention(%s)", (keep,), nothing)


def failures(queue: str | None, kind: str | None, since: datetime | None, limit: int) -> Call[list[FailureGroup]]:
    """List groups of similar failures, the latest first."""
    return Call(
        f"select {columns(FailureGroup)} from dibs.failures"
        " where (%s::text is null or %s = any (queues)) and (%s::text is null or %s = any (kinds))"
        " and (%s::timestamptz is null or last_at >= %s) order by last_at desc, fingerprint limit %s",
        (queue, queue, kind, kind, since, since, limit),
        lambda rows: [FailureGroup(*row) for row in rows],
        slow=True,
    )


def failure_hours(since: Seconds) -> Call[list[FailureHour]]:
    """Count the failures of each group by the hour."""
    return Call(
        "select fingerprint, at, sum(failures)::bigint from dibs.failure_hours"
        f" where at > dibs.now() - {SPAN} group by fingerprint, at",
        (seconds(since),),
        lambda rows: [FailureHour(*row) for row in rows],
        slow=True,
    )
