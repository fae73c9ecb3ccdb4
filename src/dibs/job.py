"""Jobs as values: new jobs, claimed jobs, and the answers of verbs."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from operator import attrgetter
from typing import Any, Protocol, TypedDict
from uuid import UUID

import msgspec

from dibs.errors import InvalidArgument, UnknownJob
from dibs.policy import FOREVER, Backoff, DedupScope, History, OnDuplicate, Seconds, moment, seconds
from dibs.states import Answer, State

BINARY = "application/octet-stream"
BYTES = (bytes, bytearray, memoryview)


class JobOptions(TypedDict, total=False):
    """The options of one job. Those of its queue apply for omitted ones."""

    content_type: str
    headers: dict[str, Any]
    priority: int
    delay: Seconds
    due_at: datetime
    ttl: Seconds
    deadline: datetime
    lease: Seconds
    lease_growth: float
    lease_cap: Seconds
    max_attempts: int
    backoff: Backoff
    history: History
    dedup_key: str
    shard_key: str
    dedup: bool
    dedup_scope: DedupScope
    dedup_for: Seconds
    on_duplicate: OnDuplicate
    group: str
    cost: int
    resources: dict[str, int]


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
        """True if it has a dedup key, given or made from its payload."""
        return self.dedup_key is not None or bool(self.dedup)

    @property
    def body(self) -> bytes | None:
        """The payload, if it is bytes."""
        return bytes(self.payload) if isinstance(self.payload, BYTES) else None

    def as_json(self, id: UUID | None, *, inline: bool = False) -> dict[str, Any]:
        """Return the JSON object that ``enqueue_many`` takes, with this id; ``inline`` adds bytes to it in base64."""
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
    """Yield the jobs given to a bulk enqueue. Anything that is not a job is refused."""
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
        """True if this call made the job."""
        return self.outcome != Answer.DUPLICATE


class Held(Protocol):
    """A job under a lease: its id, and the token that proves the lease."""

    @property
    def id(self) -> UUID: ...  # noqa: D102

    @property
    def token(self) -> UUID: ...  # noqa: D102


class Claimed(msgspec.Struct, frozen=True):
    """A job held under a lease."""

    # Claims are large and most fields are never read, so ids and times are converted on access.

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
        """Identifies the run: after a lost lease, a worker may have two runs of one job in hand."""
        return self._key + self._token

    @property
    def _mark(self) -> str:
        """The name of the run in a ring. Every login may listen, but only the holder of the run can compute it."""
        return sha256(self._run_key).hexdigest()[:16]

    @property
    def id(self) -> UUID:
        """The job's id."""
        return UUID(bytes=self._key)

    @property
    def token(self) -> UUID:
        """The token that proves the lease."""
        return UUID(bytes=self._token)

    @property
    def due_at(self) -> datetime:
        """The time when it was due."""
        return read_time(self._due_at)

    @property
    def deadline(self) -> datetime | None:
        """The time by which it must have started, if it has a deadline."""
        return None if self._deadline is None else read_time(self._deadline)

    @property
    def claimed_at(self) -> datetime:
        """The time when this run began, by the database's clock."""
        return read_time(self._claimed_at)

    @property
    def lease_until(self) -> datetime:
        """The time when the lease ends unless it is renewed, by the database's clock."""
        return read_time(self._lease_until)

    @property
    def lease(self) -> float:
        """The duration of the lease in seconds."""
        return _seconds_between(self._claimed_at, self._lease_until)

    @property
    def waited(self) -> float:
        """The seconds between its due time and the beginning of this run."""
        return _seconds_between(self._due_at, self._claimed_at)

    @property
    def payload(self) -> Any:
        """The payload as JSON. It is read on access, so that one unreadable payload does not fail a whole claim."""
        return None if self._payload is None else _read(self._payload)

    @property
    def headers(self) -> dict[str, Any] | None:
        """The headers sent along."""
        return None if self._headers is None else _read(self._headers)

    @property
    def content(self) -> Any:
        """The payload: bytes if bytes were sent, otherwise JSON."""
        return self.payload if self.body is None else self.body

    @property
    def is_last_attempt(self) -> bool:
        """True if a failure of this attempt exhausts the job."""
        return self.attempt >= self.max_attempts


_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def read_time(raw: bytes) -> datetime:
    """Read a time as PostgreSQL sends it: in microseconds since the year 2000."""
    return _EPOCH + timedelta(microseconds=int.from_bytes(raw, signed=True))


def _seconds_between(earlier: bytes, later: bytes) -> float:
    return (int.from_bytes(later, signed=True) - int.from_bytes(earlier, signed=True)) / 1e6


def write_time(time: datetime) -> bytes:
    """Write a time as PostgreSQL sends it."""
    return ((time - _EPOCH) // timedelta(microseconds=1)).to_bytes(8, signed=True)


def _read(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidArgument(f"the payload cannot be read: {error}") from error


class Answered(msgspec.Struct, frozen=True):
    """The answer for one job of a batch."""

    id: UUID
    answer: Answer


class Failed(msgspec.Struct, frozen=True):
    """The state of a job after a failed run; None if the answer is ``lost``."""

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
    """Make the error for a job that does not exist."""
    return UnknownJob(f"there is no job {id}", hint="it was never committed, or it was pruned")


def job_id(value: UUID | str) -> UUID:
    """Read a job's id."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise InvalidArgument(
            f"{value!r} is no job's id", hint="an id looks like 0199f3a2-7c1e-7b02-a1f4-5d0c9a3be871"
        ) from None
