"""Operations on many jobs at once: their filters, steps and results."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, get_args

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime
    from uuid import UUID

    from dibs.info import JobSummary
    from dibs.states import Answer

Action = Literal["read", "retry", "cancel", "delete", "edit", "pause", "schedules"]
"""The actions that a person may be allowed; the database has a role for each."""
ACTIONS: tuple[Action, ...] = get_args(Action)

ACTOR: ContextVar[str | None] = ContextVar("dibs.actor", default=None)
"""The actor that the audit records."""


class JobFilter(TypedDict, total=False):
    """A choice of jobs: they have to match every field that is given.

    ``reason`` is a LIKE pattern for the reason of a dead job, or for the last error of another; ``failure`` is a
    fingerprint of :class:`ErrorGroup`. ``payload`` and ``headers`` have to be contained in the job's.
    """

    ids: Sequence[UUID]
    queue: str
    kind: str
    states: Sequence[str]
    group: str
    dedup_key: str
    reason: str
    failure: str
    payload: Any
    headers: dict[str, Any]
    enqueued_after: datetime
    enqueued_before: datetime
    ended_after: datetime
    ended_before: datetime


class Steps(TypedDict, total=False):
    """The options of a verb on many jobs, which works in steps, each a short transaction.

    It stops after ``max`` jobs or ``within`` seconds, and begins after the job ``after``, to continue a call that
    stopped. ``dry_run`` only counts. ``on_step`` is called with the sums so far.
    """

    max: int | None
    within: float | None
    after: UUID | None
    dry_run: bool
    on_step: Callable[[Changed], None] | None


class StillDead(msgspec.Struct, frozen=True):
    """A job that stays dead although a retry chose it, and the reason.

    ``duplicate`` means that another job has its dedup key now, ``busy`` that another transaction holds the job.
    """

    id: UUID
    reason: Answer


class StepArgs(NamedTuple):
    """The arguments of every step: the most jobs, the job to go on after, the operation to continue, and dry run."""

    max: int
    after: UUID | None
    continues: int | None
    dry_run: bool


class Step(msgspec.Struct, frozen=True):
    """One step of a change: how many jobs were found and changed, and where the next goes on, if there is one."""

    matched: int
    done: int
    next: UUID | None
    operation: int | None
    refused: tuple[StillDead, ...] = ()


class Changed(msgspec.Struct, frozen=True):
    """The number of jobs found and the number of them changed; ``operation`` is the number in the audit.

    Fewer are changed than found when others hold some, or, with a dry run, none. ``more`` says that it stopped, by
    ``max`` or ``within``, before everything was looked at; then ``next`` is the job ``after`` which to go on.
    ``refused`` are the first 1,000 jobs that a retry could not bring back.
    """

    matched: int
    done: int
    operation: int | None
    more: bool
    next: UUID | None = None
    refused: tuple[StillDead, ...] = ()


class Found(msgspec.Struct, frozen=True):
    """Jobs that a search found, newest first, and how many it looked at.

    With ``next`` there may be more: give it as ``before``. A search that ran out of time may have found fewer than were
    asked for, or none, and still go on.
    """

    jobs: list[JobSummary]
    looked: int
    next: UUID | None


class Exported(msgspec.Struct, frozen=True):
    """A part of an export: jobs as they are written out, and how many were looked at for them.

    With ``next`` there may be more: give it as ``before`` to go on after the last of these.
    """

    jobs: list[dict[str, Any]]
    looked: int
    next: UUID | None


class Audit(msgspec.Struct, frozen=True):
    """An entry of the audit: who changed what, and when; ``jobs`` is the number of jobs, if it was about jobs."""

    operation: int
    at: datetime
    until: datetime
    role: str
    actor: str | None
    verb: str
    queue: str | None
    filter: dict[str, Any] | None
    jobs: int | None
    detail: dict[str, Any] | None
    job_id: UUID | None


class FailureGroup(msgspec.Struct, frozen=True):
    """Similar failures: the same exception, message without numbers and ids, and place where it was raised."""

    fingerprint: str
    error: str
    message: str
    frame: str | None
    failures: int
    first_at: datetime
    last_at: datetime
    kinds: list[str]
    queues: list[str]


class FailureHour(msgspec.Struct, frozen=True):
    """The number of failures of a group in the hour that began ``at``."""

    fingerprint: str
    at: datetime
    failures: int


@contextmanager
def acting_as(actor: str) -> Iterator[None]:
    """Set the actor for this block: the audit records it for every change that a client makes in the block.

    The audit keeps the database's login as well; the name is for a program that serves many people.
    """
    token = ACTOR.set(actor)
    try:
        yield
    finally:
        ACTOR.reset(token)
