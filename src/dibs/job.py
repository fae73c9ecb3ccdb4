"""Jobs as values: what is asked, what is held, what was answered."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from operator import attrgetter
from typing import Any, Protocol
from uuid import UUID

import msgspec

from dibs.errors import InvalidArgument, UnknownJob
from dibs.policy import FOREVER, Backoff, DedupScope, History, OnDuplicate, Seconds, moment, seconds
from dibs.states import Answer, State

BINARY = "application/octet-stream"
BYTES = (bytes, bytearray, memoryview)


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to be enqueued. ``payload`` is anything JSON can hold, or bytes."""

    queue: str
    kind: str = "message"
    payload: Any = None
    content_type: str | None = None
    headers: dict[str, Any] | None = None
    id: UUID | None = None
    priority: int | None = None
    delay: Seconds | None = None
    due_at: datetime | None = None
    ttl: Seconds | None = None
    deadline: datetime | None = None
    lease: Seconds | None = None
    lease_growth: float | None = None
    lease_cap: Seconds | None = None
    max_attempts: int | None = None
    backoff: Backoff | None = None
    history: History | None = None
    dedup_key: str | None = None
    shard_key: str | None = None
    dedup: bool | None = None
    dedup_scope: DedupScope | None = None
    dedup_for: Seconds | None = None
    on_duplicate: OnDuplicate | None = None
    group: str | None = None
    cost: int | None = None
    resources: dict[str, int] | None = None

    @property
    def has_key(self) -> bool:
        """Whether it has a dedup key, given or made of its payload."""
        return self.dedup_key is not None or bool(self.dedup)

    @property
    def body(self) -> bytes | None:
        """The payload, if it is bytes."""
        return bytes(self.payload) if isinstance(self.payload, BYTES) else None

    def as_json(self, id: UUID | None, *, inline: bool = False) -> dict[str, Any]:
        """The form ``enqueue_many`` takes, with the id it is to have; ``inline`` puts bytes into it in base64."""
        asked: dict[str, Any] = {"queue": self.queue, "kind": self.kind}
        if id is not None:
            asked["id"] = id
        if self.body is None:
            asked["payload"] = self.payload
        else:
            asked["content_type"] = self.content_type or BINARY
            if inline:
                asked["body"] = b64encode(self.body).decode()
        for name, value in zip(_OPTIONS, _options_of(self), strict=True):
            if value is not None:
                asked[name] = seconds(value) if name in _DURATIONS else value
                if name in _MOMENTS:
                    moment(name, value)
        if self.ttl is not None:
            asked["ttl"] = min(asked["ttl"], FOREVER.total_seconds())
        return asked


def new_jobs(given: Iterable[Any]) -> Iterator[NewJob]:
    """What a bulk enqueue was given, one by one; anything but jobs is refused."""
    if isinstance(given, NewJob) or not isinstance(given, Iterable):
        raise InvalidArgument(
            f"enqueue_many takes many jobs, and was given one {type(given).__name__}", hint="give it a list of jobs"
        )
    return map(_known, given)


def _known(job: Any) -> NewJob:
    if isinstance(job, NewJob):
        return job
    raise InvalidArgument(
        f"enqueue_many takes jobs, and was given a {type(job).__name__}",
        hint="make each with call(…) of its task, or with dibs.NewJob(queue=…, kind=…)",
    )


_OPTIONS = tuple(name for name in NewJob.__struct_fields__ if name not in {"queue", "kind", "payload", "id"})
_options_of = attrgetter(*_OPTIONS)
_DURATIONS = frozenset({"delay", "ttl", "lease", "lease_cap", "dedup_for"})
_MOMENTS = frozenset({"due_at", "deadline"})


class Enqueued(msgspec.Struct, frozen=True):
    """The result of an enqueue: the job's id, and whether it is new."""

    id: UUID
    outcome: Answer

    @property
    def is_new(self) -> bool:
        """Whether this call made the job."""
        return self.outcome != Answer.DUPLICATE


class Held(Protocol):
    """Whatever has an id and the token that proves its lease."""

    @property
    def id(self) -> UUID: ...  # noqa: D102

    @property
    def token(self) -> UUID: ...  # noqa: D102


class Claimed(msgspec.Struct, frozen=True):
    """A job held under a lease."""

    # Claims are large and most of a job is never looked at, so ids and times stay as the database sent them until then.

    _key: bytes
    _token: bytes
    queue: str
    kind: str
    _payload: str | None
    body: bytes | None
    content_type: str | None
    _headers: str | None
    priority: int
    run: int
    attempt: int
    max_attempts: int
    losses: int
    _due_at: bytes
    _deadline: bytes | None
    _claimed_at: bytes
    _lease_until: bytes

    def __repr__(self) -> str:
        return (
            f"Claimed(id={self.id}, queue={self.queue!r}, kind={self.kind!r}, attempt={self.attempt},"
            f" lease_until={self.lease_until.isoformat()})"
        )

    @property
    def _run_key(self) -> bytes:
        """Tells this run from another of the same job, which the same worker may have in hand if the lease was lost."""
        return self._key + self._token

    @property
    def _mark(self) -> str:
        """By this a ring names the run: every login may listen, and only who holds the run knows it by this."""
        return sha256(self._run_key).hexdigest()[:16]

    @property
    def id(self) -> UUID:
        """The job's id."""
        return UUID(bytes=self._key)

    @property
    def token(self) -> UUID:
        """What proves that the lease is ours."""
        return UUID(bytes=self._token)

    @property
    def due_at(self) -> datetime:
        """When it was due."""
        return read_time(self._due_at)

    @property
    def deadline(self) -> datetime | None:
        """When it must have started, if it has a deadline."""
        return None if self._deadline is None else read_time(self._deadline)

    @property
    def claimed_at(self) -> datetime:
        """When this run began, by the database's clock."""
        return read_time(self._claimed_at)

    @property
    def lease_until(self) -> datetime:
        """When the lease ends unless it is renewed, by the database's clock."""
        return read_time(self._lease_until)

    @property
    def lease(self) -> float:
        """How many seconds the lease lasts."""
        return _seconds_between(self._claimed_at, self._lease_until)

    @property
    def waited(self) -> float:
        """How many seconds it had been due when this run began."""
        return _seconds_between(self._due_at, self._claimed_at)

    @property
    def payload(self) -> Any:
        """What the JSON held. Read on access, so that one that cannot be read does not spoil a claim."""
        return None if self._payload is None else _read(self._payload)

    @property
    def headers(self) -> dict[str, Any] | None:
        """The headers sent along."""
        return None if self._headers is None else _read(self._headers)

    @property
    def content(self) -> Any:
        """The payload: bytes if bytes were sent, otherwise what the JSON held."""
        return self.payload if self.body is None else self.body

    @property
    def is_last_attempt(self) -> bool:
        """Whether a failure of this attempt would exhaust the job."""
        return self.attempt >= self.max_attempts


_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def read_time(raw: bytes) -> datetime:
    """A time as PostgreSQL sends it: in microseconds since the year 2000."""
    return _EPOCH + timedelta(microseconds=int.from_bytes(raw, signed=True))


def _seconds_between(earlier: bytes, later: bytes) -> float:
    return (int.from_bytes(later, signed=True) - int.from_bytes(earlier, signed=True)) / 1e6


def write_time(time: datetime) -> bytes:
    """A time as PostgreSQL sends it."""
    return ((time - _EPOCH) // timedelta(microseconds=1)).to_bytes(8, signed=True)


def _read(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidArgument(f"the payload cannot be read: {error}") from error


class Answered(msgspec.Struct, frozen=True):
    """What a batch answered for one of its jobs."""

    id: UUID
    answer: Answer


class Failed(msgspec.Struct, frozen=True):
    """Where a job went after a failed run; nowhere if the answer is ``lost``."""

    state: State | None
    due_at: datetime | None
    answer: Answer = Answer.OK
    id: UUID | None = None


__all__ = [
    "Answered",
    "Claimed",
    "Enqueued",
    "Failed",
    "Held",
    "NewJob",
]


def no_such_job(id: UUID) -> UnknownJob:
    """The error that says so."""
    return UnknownJob(f"there is no job {id}", hint="it was never committed, or it was pruned")


def job_id(value: UUID | str) -> UUID:
    """A job's id from what somebody gives for one."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise InvalidArgument(
            f"{value!r} is no job's id", hint="an id looks like 0199f3a2-7c1e-7b02-a1f4-5d0c9a3be871"
        ) from None
