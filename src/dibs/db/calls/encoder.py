"""Encoders of jobs: all that a task's jobs have in common is encoded once."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from dibs.db.calls.call import SPAN, to_json
from dibs.errors import InvalidArgument
from dibs.job import BYTES, NewJob

if TYPE_CHECKING:
    from collections.abc import Sequence

ARGUMENTS = {
    **dict.fromkeys(("queue", "kind", "content_type", "history"), "%s"),
    **dict.fromkeys(("payload", "headers"), "%s::jsonb"),
    **dict.fromkeys(("priority", "max_attempts"), "%s::integer"),
    **dict.fromkeys(("due_at", "deadline"), "%s::timestamptz"),
    **dict.fromkeys(("delay", "ttl"), SPAN),
    "body": "%s::bytea",
    "id": "%s::uuid",
}
"""The arguments that ``dibs.enqueue`` is called with, and how each is written. Other options need JSON."""


class Statement(NamedTuple):
    """A statement that enqueues one job. Its arguments are the id, the content, ``options``, and ``fresh``."""

    sql: str
    options: Sequence[Any]


class TaskCall(NewJob, frozen=True, kw_only=True):
    """A job made by an encoder. If an option is changed later, the encoder no longer fits it."""

    encoder: Encoder


class Encoder:
    """Makes and encodes jobs that differ only in their payloads.

    ``own`` names the options that ``Task.using`` was given. Encoders compare by it alone, so that two jobs of different
    encoders are equal if their options are.
    """

    def __init__(self, own: frozenset[str] = frozenset(), /, **options: Any) -> None:
        self.own = own
        self.bare = TaskCall(encoder=self, **options)
        """A job without a payload."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Encoder) and self.own == other.own

    def __hash__(self) -> int:
        return hash(self.own)

    def job(self, payload: Any) -> TaskCall:
        """Make a job."""
        return replace(self.bare, payload=payload)

    @cached_property
    def head(self) -> str:
        """The JSON of these jobs up to the payload."""
        members = self.bare.as_json(None)
        del members["payload"]
        return f'{to_json(members)[:-1]},"payload":'

    @cached_property
    def statement(self) -> Statement | None:
        """The statement for one of these jobs; None if it has an option that needs JSON."""
        return _statement_for(self.bare)


@lru_cache(maxsize=256)
def encoder_of_kind(queue: str, kind: str) -> Encoder:
    """The encoder of a queue's jobs of one kind that have no options."""
    return Encoder(queue=queue, kind=kind)


def encode(job: NewJob) -> str:
    """Encode a job for ``enqueue_many``, without the closing brace: its id is added later."""
    encoder = _encoder_of(job)
    try:
        if encoder is None:
            return to_json(job.as_json(None))[:-1]
        return f"{encoder.head}{to_json(job.payload)}"
    except InvalidArgument as error:
        raise in_job(job, error) from None


def statement_for(job: NewJob) -> Statement | None:
    """The statement that enqueues this job by itself; None if it has an option that needs JSON."""
    encoder = _encoder_of(job)
    return _statement_for(job) if encoder is None else encoder.statement


def _encoder_of(job: NewJob) -> Encoder | None:
    """The encoder of a job; None if its options were changed since, or its payload is bytes."""
    if not isinstance(job, TaskCall) or isinstance(job.payload, BYTES):
        return None
    return job.encoder if job == job.encoder.job(job.payload) else None


def _statement_for(job: NewJob) -> Statement | None:
    options = job.as_json(None)
    options.pop("payload", None)
    if not options.keys() <= ARGUMENTS.keys():
        return None
    if type(options.get("priority", 0)) is not int or type(options.get("max_attempts", 0)) is not int:
        return None
    if "headers" in options:
        try:
            options["headers"] = to_json(options["headers"])
        except InvalidArgument as error:
            raise in_job(job, error) from None
    return Statement(_sql("payload" if job.body is None else "body", *options), tuple(options.values()))


@lru_cache(maxsize=256)
def _sql(*names: str) -> str:
    arguments = ", ".join(f"{name} => {ARGUMENTS[name]}" for name in ("id", *names))
    # In a list of columns the function's many arguments cost less than after FROM.
    enqueued = f"select dibs.enqueue({arguments}, fresh => %s) as made offset 0"
    return f"select (made).job_id, (made).outcome from ({enqueued}) as enqueued"


def in_job(job: NewJob, error: InvalidArgument) -> InvalidArgument:
    """Name the job in an error about its JSON, and the place in it."""
    try:
        to_json(job.as_json(None))
    except InvalidArgument as located:
        error = located
    return InvalidArgument(f"job of kind {job.kind!r} for queue {job.queue!r}: {error.message}", hint=error.hint)
