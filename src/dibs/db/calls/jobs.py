"""Jobs, from the enqueue to the end, and their status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from dibs.db.calls.call import (
    SPAN,
    Call,
    Row,
    all_answers,
    as_interval,
    clean,
    columns,
    first,
    ids_and_tokens,
    in_seconds,
    one_answer,
    to_json,
    to_jsonb,
    uuids,
)
from dibs.db.calls.encoder import encode, in_job, statement_for
from dibs.errors import InvalidArgument
from dibs.info import JobSummary, RunningJob
from dibs.job import Answered, Claimed, Enqueued, Failed, Held, NewJob
from dibs.progress import Status
from dibs.states import Answer, State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dibs.policy import Seconds


def enqueue(job: NewJob, id: str, *, fresh: bool) -> Call[Enqueued]:
    """Enqueue one job under the id of these hex digits; ``fresh`` if it was never sent before."""
    statement = statement_for(job)
    repeat = (lambda: enqueue(job, id, fresh=False)) if fresh else None
    if statement is None:
        many = enqueue_many([encode(job)], [id], [job.body], fresh=fresh)
        return Call(
            many.sql, many.args, lambda rows: _made(rows[0][1:] if rows else (UUID(id), "enqueued")), repeat=repeat
        )
    try:
        content = to_jsonb(job.payload) if job.body is None else job.body
    except InvalidArgument as error:
        raise in_job(job, error) from None
    return Call(statement.sql, (id, content, *statement.options, fresh), lambda rows: _made(rows[0]), repeat=repeat)


def _made(row: Row) -> Enqueued:
    return Enqueued(row[0], Answer(row[1]))


def enqueue_many(
    jobs: Sequence[str], ids: Sequence[str], bodies: Sequence[bytes | None] | None, *, fresh: bool
) -> Call[list[Row]]:
    """Enqueue encoded jobs under these ids; ``fresh`` if the ids were never sent before.

    A row of the answer holds the position from 1, the id and the outcome. A job that was enqueued as asked has none.
    """
    asked = ",".join([f'{job},"id":"{id}"}}' for job, id in zip(jobs, ids, strict=True)])
    return Call(
        "select item, id, outcome from dibs.enqueue_many(%s::jsonb, %s::bytea[], %s) where outcome <> 'enqueued'",
        (f"[{asked}]", bodies if bodies and any(b is not None for b in bodies) else None, fresh),
        list,
    )


CLAIM = (
    "select uuid_send(id), uuid_send(token), queue, kind, payload::text, body, content_type, headers::text,"
    " priority, run, attempt, max_attempts, losses, timestamptz_send(due_at), timestamptz_send(deadline),"
    " timestamptz_send(claimed_at), timestamptz_send(lease_until)"
    f" from dibs.claim(%s::text[], %s, %s, {SPAN}, %s, %s)"
)


def claim(queues: Sequence[str], max: int, worker: UUID | None, lease: Seconds | None) -> Call[list[Claimed]]:
    """Claim up to ``max`` due jobs under a token made here. A repeat returns the jobs that the token holds."""
    asked = (list(queues), max, worker, in_seconds(lease), uuid4())
    return _claim(
        asked, is_repeat=False, repeat=lambda: _claim(asked, is_repeat=True), cure=lambda: bury_unreadable(queues)
    )


def _claim(asked: tuple[Any, ...], *, is_repeat: bool, **otherwise: Any) -> Call[list[Claimed]]:
    return Call(CLAIM, (*asked, is_repeat), lambda rows: [Claimed(*row) for row in rows], binary=True, **otherwise)


def bury_unreadable(queues: Sequence[str]) -> Call[list[Row]]:
    """End the jobs of these queues that cannot be read. Return their ids and the reasons."""
    return Call("select id, reason from dibs.bury_unreadable(%s::text[])", (list(queues),), list, slow=True)


def wait_hint(queues: Sequence[str]) -> Call[float | None]:
    """Return the seconds until the next scheduled job is due."""
    return Call(
        "select extract(epoch from dibs.next_due(%s::text[]) - dibs.now())::float8",
        (list(queues),),
        first,
    )


def wait_or_unpark(queues: Sequence[str], worker: UUID, room: int) -> Call[tuple[float | None, int]]:
    """Unpark jobs of kinds that the worker runs. Return the answer of :func:`wait_hint`, and how many were unparked."""
    return Call(
        "select extract(epoch from dibs.next_due(%s::text[]) - dibs.now())::float8, dibs.unpark(%s, %s)",
        (list(queues), worker, room),
        lambda rows: (rows[0][0], rows[0][1]),
    )


def unpark(worker: UUID, room: int) -> Call[int]:
    """Unpark jobs of kinds that a worker runs. Return how many."""
    return Call("select dibs.unpark(%s, %s)", (worker, room), first)


def extend_many(held: Sequence[Held], lease: Seconds | None, progress: Sequence[Any] | None) -> Call[list[Answered]]:
    """Renew leases."""
    return Call(
        f"select id, answer from dibs.extend_many(%s::uuid[], %s::uuid[], {SPAN}, %s::jsonb[])",
        (*ids_and_tokens(held), in_seconds(lease), progress and [to_jsonb(p) for p in progress]),
        all_answers,
    )


def progress_many(held: Sequence[Held], progress: Sequence[Mapping[str, Any] | None]) -> Call[list[Answered]]:
    """Report the progress of runs."""
    return Call(
        "select id, answer from dibs.progress_many(%s::uuid[], %s::uuid[], %s::jsonb[])",
        (*ids_and_tokens(held), [to_jsonb(p) for p in progress]),
        all_answers,
    )


def complete(held: Held, result: Any, follow_ups: Sequence[dict[str, Any]] | None) -> Call[Answer]:
    """End a job as succeeded, in the current transaction."""
    return Call(
        "select dibs.complete(%s, %s, %s::jsonb, %s::jsonb)",
        (held.id, held.token, to_jsonb(result), None if follow_ups is None else to_json(follow_ups)),
        one_answer,
    )


def complete_many(
    held: Sequence[Held],
    results: Sequence[Any] | None,
    follow_ups: Sequence[Sequence[dict[str, Any]]] | None,
) -> Call[list[Answer]]:
    """End jobs as succeeded. Return the answer for each."""

    def read(rows: list[Row]) -> list[Answer]:
        answers = [Answer.OK] * len(held)
        for item, answer in rows:
            answers[item - 1] = Answer(answer)
        return answers

    return Call(
        "select item, answer from dibs.complete_many(%s::uuid[], %s::uuid[], %s::jsonb[], %s::jsonb)"
        " where answer <> 'ok'",
        (
            *ids_and_tokens(held),
            None if results is None else [to_jsonb(r) for r in results],
            None if follow_ups is None else to_json(follow_ups),
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
        (*ids_and_tokens(held), [e and clean(e) for e in errors], list(finals), [as_interval(d) for d in delays]),
        lambda rows: [Failed(state and State(state), due_at, Answer(answer), id) for state, due_at, answer, id in rows],
    )


def snooze_many(held: Sequence[Held], delays: Sequence[Seconds]) -> Call[list[Answered]]:
    """Put jobs back to wait, uncharged."""
    return Call(
        "select id, answer from dibs.snooze_many(%s::uuid[], %s::uuid[], %s::interval[])",
        (*ids_and_tokens(held), [as_interval(d) for d in delays]),
        all_answers,
    )


def release_many(held: Sequence[Held], delays: Sequence[Seconds | None]) -> Call[list[Answered]]:
    """Give jobs back unrun, uncharged."""
    return Call(
        "select id, answer from dibs.release_many(%s::uuid[], %s::uuid[], %s::interval[])",
        (*ids_and_tokens(held), [as_interval(d) for d in delays]),
        all_answers,
    )


def park_many(held: Sequence[Held]) -> Call[list[Answered]]:
    """Park jobs of kinds that we do not run, until a worker comes that does."""
    return Call("select id, answer from dibs.park_many(%s::uuid[], %s::uuid[])", ids_and_tokens(held), all_answers)


def cancel_many(ids: Sequence[UUID], reason: str) -> Call[list[Answered]]:
    """Cancel jobs, or ask their holders to stop."""
    return Call("select id, answer from dibs.cancel_many(%s::uuid[], %s)", (uuids(ids), reason), all_answers)


def cancel(id: UUID, reason: str) -> Call[Answer]:
    """Cancel one job; an unknown or ended one raises."""
    return Call("select dibs.cancel(%s, %s)", (id, reason), one_answer, repeatable=False)


def cancel_key(queue: str, dedup_key: str, reason: str) -> Call[Answered | None]:
    """Cancel the job that holds a dedup key."""
    return Call(
        "select id, answer from dibs.cancel_key(%s, %s, %s)",
        (queue, dedup_key, reason),
        lambda rows: all_answers(rows)[0] if rows else None,
        repeatable=False,
    )


STATUS = "state, run, attempts, max_attempts, due_at, claimed_at, ended_at, reason, progress, result"


def _status(row: Row) -> Status:
    return Status(State(row[0]), *row[1:])


def status(id: UUID) -> Call[Status]:
    """Return the state of a job, the progress of its run, and its result."""
    return Call(f"select {STATUS} from dibs.status(%s)", (id,), lambda rows: _status(rows[0]))


def status_many(ids: Sequence[UUID]) -> Call[list[Status]]:
    """Return the status of many jobs, in one snapshot."""
    return Call(
        f"select {STATUS} from dibs.status_many(%s::uuid[])", (uuids(ids),), lambda rows: [_status(row) for row in rows]
    )


def summary(row: Row) -> JobSummary:
    """Read a row of the view of jobs."""
    id, queue, kind, state, *rest = row
    return JobSummary(id, queue, kind, State(state), *rest)


def running(worker: int | None, limit: int) -> Call[list[RunningJob]]:
    """List running jobs, the longest running first."""
    return Call(
        f"select {columns(RunningJob)} from dibs.running where %s::bigint is null or worker = %s"
        " order by claimed_at, id limit %s",
        (worker, worker, limit),
        lambda rows: [RunningJob(*row) for row in rows],
        slow=True,
    )


def held(ids: Sequence[UUID]) -> Call[list[RunningJob]]:
    """List those of the given jobs that run."""
    return Call(
        f"select {columns(RunningJob)} from dibs.running where id = any (%s::uuid[])",
        (list(ids),),
        lambda rows: [RunningJob(*row) for row in rows],
    )


def why(id: UUID) -> Call[str]:
    """Explain a job in words."""
    return Call("select dibs.why(%s)", (id,), first)


def show(id: UUID) -> Call[dict[str, Any] | None]:
    """Return all data about a job."""
    return Call("select dibs.show(%s)", (id,), first)
