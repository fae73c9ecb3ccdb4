"""One value for each SQL function: what to send, and how to read the answer.

The sync and the async database run the same values, so no verb is described twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

import msgspec

from dibs.errors import InvalidArgument
from dibs.info import (
    Depth,
    DrainEstimate,
    JobSummary,
    Limit,
    MadeDay,
    Pruned,
    QueueInfo,
    Rescued,
    Resumed,
    TaskInfo,
    WorkerInfo,
)
from dibs.job import Answered, Claimed, Enqueued, Failed, Held, NewJob, Redriven
from dibs.policy import Backoff, GroupPolicy, QueuePolicy, Seconds, seconds
from dibs.progress import Status
from dibs.shards import Hold, Shard
from dibs.states import Answer, State
from dibs.stats import Statistics, Totals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

R = TypeVar("R")
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """A statement, its arguments, and how its rows become the answer."""

    sql: str
    args: tuple[Any, ...]
    read: Callable[[list[Row]], R]
    again: bool = True
    """Whether it may be repeated when its answer was lost: true if that does no more than once would have."""
    binary: bool = False
    """Whether the answer is to come in binary, where the driver can choose: quicker for many bytes and numbers."""


def _first(rows: list[Row]) -> Any:
    return rows[0][0]


def _answer(rows: list[Row]) -> Answer:
    return Answer(rows[0][0])


def _nothing(rows: list[Row]) -> None:  # noqa: ARG001
    return None


def _json(value: Any) -> str:
    text = msgspec.json.encode(value, enc_hook=_encode)
    if b"null" in text and _has_nan(value):
        raise InvalidArgument("JSON has no NaN and no infinity; send null, a string, or bytes")
    return text.decode()


def _has_nan(value: Any) -> bool:
    # msgspec writes a float that is not finite as null; nothing may be changed in silence.
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_nan, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_nan, value))


def _encode(value: Any) -> Any:
    if isinstance(value, Backoff):
        return value.as_json()
    if isinstance(value, timedelta):
        return seconds(value)
    raise TypeError(f"{type(value).__name__} cannot be sent as JSON")


def _jsonb(value: Any) -> str | None:
    return None if value is None else _json(value)


def _uuids(ids: Iterable[UUID]) -> str:
    # The number is written faster than the UUID; an id given as text is taken as it is.
    return "{" + ",".join([f"{id.int:032x}" if isinstance(id, UUID) else str(id) for id in ids]) + "}"


def _keys(held: Sequence[Held]) -> tuple[str, str]:
    ids = [h.key.hex() if isinstance(h, Claimed) else str(h.id) for h in held]
    tokens = [h.raw_token.hex() if isinstance(h, Claimed) else str(h.token) for h in held]
    return "{" + ",".join(ids) + "}", "{" + ",".join(tokens) + "}"


def _span(duration: Seconds | None) -> float | None:
    return None if duration is None else seconds(duration)


_SPAN = "make_interval(secs => %s)"


def _columns(cls: type[Any]) -> str:
    """The columns of a view whose rows become values of this dataclass."""
    return ", ".join(cls.__dataclass_fields__)


def enqueue_many(jobs: Sequence[NewJob], ids: Sequence[UUID], *, fresh: bool) -> Call[list[Enqueued]]:
    """Put jobs in under these ids; ``fresh`` if the ids were never sent before."""
    asked = _json([job.as_json(id) for job, id in zip(jobs, ids, strict=True)])
    bodies = [job.body for job in jobs]

    def read(rows: list[Row]) -> list[Enqueued]:
        made = [Enqueued(id, Answer.ENQUEUED) for id in ids]
        for item, id, outcome in rows:
            made[item - 1] = Enqueued(id, Answer(outcome))
        return made

    return Call(
        "select item, id, outcome from dibs.enqueue_many(%s::jsonb, %s::bytea[], %s) where outcome <> 'enqueued'",
        (asked, bodies if any(b is not None for b in bodies) else None, fresh),
        read,
    )


def claim(queues: Sequence[str], max: int, worker: int | None, lease: Seconds | None) -> Call[list[Claimed]]:
    """Take up to ``max`` due jobs."""
    return Call(
        "select uuid_send(id), uuid_send(token), queue, kind, payload::text, body, content_type, headers::text,"
        " priority, run, attempt, max_attempts, losses, timestamptz_send(due_at), timestamptz_send(deadline),"
        " timestamptz_send(claimed_at), timestamptz_send(lease_until)"
        f" from dibs.claim(%s::text[], %s, %s, {_SPAN})",
        (list(queues), max, worker, _span(lease)),
        lambda rows: [Claimed(*row) for row in rows],
        binary=True,
    )


def _answers(rows: list[Row]) -> list[Answered]:
    return [Answered(id, Answer(answer)) for id, answer in rows]


def extend_many(held: Sequence[Held], lease: Seconds | None, progress: Sequence[Any] | None) -> Call[list[Answered]]:
    """Renew leases."""
    return Call(
        f"select id, answer from dibs.extend_many(%s::uuid[], %s::uuid[], {_SPAN}, %s::jsonb[])",
        (*_keys(held), _span(lease), progress and [_jsonb(p) for p in progress]),
        _answers,
    )


def complete(held: Held, result: Any, follow_ups: Sequence[dict[str, Any]] | None) -> Call[Answer]:
    """End a job as succeeded, in whatever transaction this runs in."""
    return Call(
        "select dibs.complete(%s, %s, %s::jsonb, %s::jsonb)",
        (held.id, held.token, _jsonb(result), None if follow_ups is None else _json(follow_ups)),
        _answer,
    )


def report_many(held: Sequence[Held], progress: Sequence[Mapping[str, Any] | None]) -> Call[list[Answered]]:
    """Say how far runs have come."""
    return Call(
        "select id, answer from dibs.report_many(%s::uuid[], %s::uuid[], %s::jsonb[])",
        (*_keys(held), [_jsonb(p) for p in progress]),
        _answers,
    )


def status(id: UUID) -> Call[Status]:
    """What a job is now, and how far its run has come."""
    return Call(
        "select state, run, attempts, max_attempts, due_at, claimed_at, ended_at, reason, progress"
        " from dibs.status(%s)",
        (id,),
        lambda rows: Status(State(rows[0][0]), *rows[0][1:]),
    )


def complete_many(
    held: Sequence[Held],
    results: Sequence[Any] | None,
    follow_ups: Sequence[Sequence[dict[str, Any]]] | None,
) -> Call[list[Answer]]:
    """End jobs as succeeded; what was answered for each."""

    def read(rows: list[Row]) -> list[Answer]:
        answers = [Answer.OK] * len(held)
        for item, answer in rows:
            answers[item - 1] = Answer(answer)
        return answers

    return Call(
        "select item, answer from dibs.complete_many(%s::uuid[], %s::uuid[], %s::jsonb[], %s::jsonb)"
        " where answer <> 'ok'",
        (
            *_keys(held),
            None if results is None else [_jsonb(r) for r in results],
            None if follow_ups is None else _json(follow_ups),
        ),
        read,
    )


def fail_many(
    held: Sequence[Held],
    errors: Sequence[str | None],
    finals: Sequence[bool],
    delays: Sequence[Seconds | None],
) -> Call[list[Failed]]:
    """Report runs as failed."""
    return Call(
        "select state, due_at, answer, id from dibs.fail_many(%s::uuid[], %s::uuid[], %s::text[], %s::bool[],"
        " %s::interval[])",
        (*_keys(held), [e and _clean(e) for e in errors], list(finals), [_interval(d) for d in delays]),
        lambda rows: [Failed(state and State(state), due_at, Answer(answer), id) for state, due_at, answer, id in rows],
    )


def _clean(text: str) -> str:
    # An error may say anything, and must not keep its own report from being sent.
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def _interval(duration: Seconds | None) -> str | None:
    return None if duration is None else f"{seconds(duration)!r} seconds"


def snooze_many(held: Sequence[Held], delays: Sequence[Seconds]) -> Call[list[Answered]]:
    """Put jobs back to wait, uncharged."""
    return Call(
        "select id, answer from dibs.snooze_many(%s::uuid[], %s::uuid[], %s::interval[])",
        (*_keys(held), [_interval(d) for d in delays]),
        _answers,
    )


def release_many(held: Sequence[Held], delays: Sequence[Seconds | None]) -> Call[list[Answered]]:
    """Give jobs back unrun, uncharged."""
    return Call(
        "select id, answer from dibs.release_many(%s::uuid[], %s::uuid[], %s::interval[])",
        (*_keys(held), [_interval(d) for d in delays]),
        _answers,
    )


def cancel_many(ids: Sequence[UUID], reason: str) -> Call[list[Answered]]:
    """Cancel jobs, or ask their holders to stop."""
    return Call("select id, answer from dibs.cancel_many(%s::uuid[], %s)", (_uuids(ids), reason), _answers)


def cancel(id: UUID, reason: str) -> Call[Answer]:
    """Cancel one job; an unknown or ended one raises."""
    return Call("select dibs.cancel(%s, %s)", (id, reason), _answer, again=False)


def cancel_key(queue: str, dedup_key: str, reason: str) -> Call[Answered | None]:
    """Cancel the job that holds a dedup key."""
    return Call(
        "select id, answer from dibs.cancel_key(%s, %s, %s)",
        (queue, dedup_key, reason),
        lambda rows: _answers(rows)[0] if rows else None,
        again=False,
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
    )


def _redriven(rows: list[Row]) -> list[Redriven]:
    return [
        Redriven(id, queue, kind, State(was), reason, Answer(answer)) for id, queue, kind, was, reason, answer in rows
    ]


def redrive(
    filters: Mapping[str, Any], *, max: int, rate: float | None, delay: float, dry_run: bool
) -> Call[list[Redriven]]:
    """Bring dead jobs back."""
    return Call(
        "select id, in_queue, of_kind, was, cause, answer from dibs.redrive("
        "ids => %s::uuid[], queue => %s, kind => %s, state => %s, reason => %s, ended_after => %s, ended_before => %s,"
        f" max => %s, rate => %s, delay => {_SPAN}, dry_run => %s)",
        (
            None if filters.get("ids") is None else _uuids(filters["ids"]),
            *(filters.get(n) for n in ("queue", "kind", "state", "reason", "ended_after", "ended_before")),
            max,
            rate,
            delay,
            dry_run,
        ),
        _redriven,
        again=filters.get("ids") is not None,
    )


def make_days(ahead: int) -> Call[list[MadeDay]]:
    """Make the days' partitions ahead of time."""
    return Call(
        "select name, outcome from dibs.make_days(%s)",
        (ahead,),
        lambda rows: [MadeDay(*row) for row in rows],
    )


def prune(max: int) -> Call[list[Pruned]]:
    """Drop old days."""
    return Call(
        "select name, outcome, trimmed from dibs.prune(%s)",
        (max,),
        lambda rows: [Pruned(*row) for row in rows],
    )


def forget() -> Call[int]:
    """Delete old hints and workers."""
    return Call("select dibs.forget()", (), _first)


def roll_up(pages: int) -> Call[tuple[int, bool]]:
    """Count what has ended into the statistics; how much, and whether there is more."""
    return Call("select counted, more from dibs.roll_up(%s)", (pages,), lambda rows: (rows[0][0], rows[0][1]))


def set_stat_retention(minutes: Seconds | None, hours: Seconds | None) -> Call[None]:
    """Keep statistics for so long."""
    return Call(f"select dibs.set_stat_retention({_SPAN}, {_SPAN})", (_span(minutes), _span(hours)), _nothing)


def statistics(queue: str | None, kind: str | None, since: Seconds, every: Seconds | None) -> Call[list[Statistics]]:
    """What happened lately, by queue and kind."""
    return Call(
        f"select * from dibs.statistics(%s, %s, {_SPAN}, {_SPAN})",
        (queue, kind, _span(since), _span(every)),
        lambda rows: [Statistics(*row) for row in rows],
    )


def totals(queue: str | None, kind: str | None) -> Call[list[Totals]]:
    """What happened for all time, by queue and kind."""
    return Call(
        f"select {_columns(Totals)} from dibs.totals"
        " where (%s::text is null or queue = %s) and (%s::text is null or kind = %s) order by queue, kind",
        (queue, queue, kind, kind),
        lambda rows: [Totals(*row) for row in rows],
    )


def pause(queue: str) -> Call[bool]:
    """Stop handing out a queue's jobs."""
    return Call("select dibs.pause(%s)", (queue,), _first, again=False)


def resume(queue: str, extend: Seconds | None) -> Call[Resumed]:
    """Hand out a queue's jobs again."""
    return Call(
        f"select paused_at, late, extended from dibs.resume(%s, {_SPAN})",
        (queue, _span(extend)),
        lambda rows: Resumed(*rows[0]),
        again=False,
    )


def set_queue(name: str, policy: QueuePolicy) -> Call[None]:
    """Make a queue, or change its policy."""
    return Call("select dibs.set_queue(%s, %s::jsonb)", (name, _json(policy)), _nothing)


def set_group(queue: str, name: str | None, policy: GroupPolicy) -> Call[None]:
    """Set weight and limits of a group, or of all groups of a queue."""
    return Call("select dibs.set_group(%s, %s, %s::jsonb)", (queue, name, _json(policy)), _nothing)


def unset_group(queue: str, name: str | None) -> Call[bool]:
    """Take away what was set for a group; whether something was."""
    return Call("select dibs.unset_group(%s, %s)", (queue, name), _first)


def set_limit(
    target: Mapping[str, str | None], concurrency: int | None, rate: float | None, burst: int | None
) -> Call[None]:
    """Limit a queue, a kind or a resource."""
    return Call(
        "select dibs.set_limit(%s, %s, %s, %s, %s, %s)",
        (target["queue"], target["kind"], target["resource"], concurrency, rate, burst),
        _nothing,
    )


def unset_limit(target: Mapping[str, str | None]) -> Call[bool]:
    """Take a limit away."""
    return Call(
        "select dibs.unset_limit(%s, %s, %s)",
        (target["queue"], target["kind"], target["resource"]),
        _first,
        again=False,
    )


def limits() -> Call[list[Limit]]:
    """Every limit, and what is used of it."""
    return Call(
        f"select {_columns(Limit)} from dibs.limits order by scope, queue, name",
        (),
        lambda rows: [Limit(*row) for row in rows],
    )


def repair_groups(max: int, after: UUID) -> Call[tuple[int, UUID | None]]:
    """Repair groups that lack a turn, a chunk at a time."""
    return Call(
        "select mended, next from dibs.repair_groups(%s, %s)", (max, after), lambda rows: (rows[0][0], rows[0][1])
    )


def repair_limits() -> Call[int]:
    """Repair limits that lack units."""
    return Call("select dibs.repair_limits()", (), _first)


def set_strict(strict: bool) -> Call[None]:
    """Refuse enqueues to queues that do not exist, or not."""
    return Call("select dibs.set_strict(%s)", (strict,), _nothing)


def why(id: UUID) -> Call[str]:
    """Explain a job in words."""
    return Call("select dibs.why(%s)", (id,), _first)


def show(id: UUID) -> Call[dict[str, Any] | None]:
    """Everything known of a job."""
    return Call("select dibs.show(%s)", (id,), _first)


def states(ids: Sequence[UUID]) -> Call[list[State]]:
    """The states of jobs."""
    return Call(
        "select state from dibs.states(%s::uuid[])",
        (_uuids(ids),),
        lambda rows: [State(r[0]) for r in rows],
    )


def depth(queue: str) -> Call[Depth]:
    """How many jobs of a queue are in each state."""
    return Call("select * from dibs.depth(%s)", (queue,), lambda rows: Depth(*rows[0]))


def depths() -> Call[list[Depth]]:
    """The same for every queue."""
    return Call(
        "select d.* from dibs.queues as q cross join lateral dibs.depth(q.name) as d order by d.queue",
        (),
        lambda rows: [Depth(*row) for row in rows],
    )


def drain_estimate(queue: str, span: Seconds) -> Call[DrainEstimate]:
    """When a queue's backlog will be gone."""
    return Call(
        f"select waiting, arriving, leaving, drained_in from dibs.drain_estimate(%s, {_SPAN})",
        (queue, seconds(span)),
        lambda rows: DrainEstimate(*rows[0]),
    )


def queues() -> Call[list[QueueInfo]]:
    """Every queue and its policy."""
    return Call(
        f"select {_columns(QueueInfo)} from dibs.queues order by name",
        (),
        lambda rows: [QueueInfo(*row) for row in rows],
    )


def workers() -> Call[list[WorkerInfo]]:
    """List the processes that registered."""
    return Call(
        f"select {_columns(WorkerInfo)} from dibs.workers order by id",
        (),
        lambda rows: [WorkerInfo(*row) for row in rows],
    )


def set_tasks(tasks: Sequence[Mapping[str, Any]]) -> Call[int]:
    """Register what a worker runs."""
    return Call("select dibs.set_tasks(%s::jsonb)", (_json(list(tasks)),), _first)


def find_task(kind: str) -> Call[dict[str, Any]]:
    """Ask what is known of a task."""
    names = ("queue", "arguments", "options")
    return Call(
        f"select {', '.join(names)} from dibs.find_task(%s)",
        (kind,),
        lambda rows: dict(zip(names, rows[0], strict=True)),
    )


def tasks() -> Call[list[TaskInfo]]:
    """List what workers have registered."""
    return Call(
        f"select {_columns(TaskInfo)} from dibs.tasks order by kind",
        (),
        lambda rows: [TaskInfo(*row) for row in rows],
    )


def jobs(
    queue: str | None, kind: str | None, state: str | None, limit: int, before: UUID | None
) -> Call[list[JobSummary]]:
    """Jobs, newest first."""
    return Call(
        f"select {_columns(JobSummary)} from dibs.jobs"
        " where (%s::text is null or queue = %s) and (%s::text is null or kind = %s)"
        " and (%s::text is null or state = %s) and (%s::uuid is null or id < %s) order by id desc limit %s",
        (queue, queue, kind, kind, state, state, before, before, limit),
        lambda rows: [JobSummary(id, queue, kind, State(state), *rest) for id, queue, kind, state, *rest in rows],
    )


def wait_hint(queues: Sequence[str]) -> Call[float | None]:
    """How many seconds until the next job that waits for its time is due."""
    return Call(
        "select extract(epoch from dibs.next_due(%s::text[]) - dibs.now())::float8",
        (list(queues),),
        _first,
    )


def register_worker(name: str, facts: Mapping[str, Any]) -> Call[int]:
    """Register a process start."""
    return Call("select dibs.register_worker(%s, %s::jsonb)", (name, _json(dict(facts))), _first)


def beat_worker(worker: int) -> Call[None]:
    """Say that a worker is alive."""
    return Call("select dibs.beat_worker(%s)", (worker,), _nothing)


def retire_worker(worker: int) -> Call[None]:
    """Strike a worker off the list."""
    return Call("select dibs.retire_worker(%s)", (worker,), _nothing)


def hold_shards(worker: int, queues: Sequence[str]) -> Call[list[Hold]]:
    """Take, renew and rebalance a worker's hold on queues that one worker at a time pulls from."""
    return Call(
        "select queue, shard, name, extract(epoch from held_until - dibs.now())::float8, claimable,"
        " extract(epoch from again)::float8 from dibs.hold_shards(%s, %s::text[])",
        (worker, list(queues)),
        lambda rows: [Hold(*row) for row in rows],
    )


def release_shards(worker: int, queues: Sequence[str] | None) -> Call[int]:
    """Let go of what a worker holds."""
    return Call(
        "select dibs.release_shards(%s, %s::text[])", (worker, None if queues is None else list(queues)), _first
    )


def shards(queue: str | None) -> Call[list[Shard]]:
    """Who pulls from what."""
    return Call(
        f"select {_columns(Shard)} from dibs.shards where %s::text is null or queue = %s order by queue, shard",
        (queue, queue),
        lambda rows: [Shard(*row) for row in rows],
    )


def now() -> Call[datetime]:
    """The database's time."""
    return Call("select dibs.now()", (), _first)


def version() -> Call[tuple[int, str]]:
    """The schema's version and the digest of its functions."""
    return Call("select version, code from dibs.version()", (), lambda rows: (rows[0][0], rows[0][1]))


def leads(worker: int) -> Call[bool]:
    """Ask whether a worker is the one that does the upkeep."""
    return Call("select dibs.leads(%s)", (worker,), _first)
