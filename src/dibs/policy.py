"""Policies as values: of queues and of groups, and the backoff."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import msgspec

from dibs.errors import DibsError, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

Seconds = float | timedelta
"""A duration: seconds, or a timedelta."""

History = Literal["all", "failures", "none"]
"""The attempts that are kept."""

DedupScope = Literal["waiting", "unfinished", "window"]
"""The time for which a job holds its dedup key: until it is claimed, until it has ended, or a window."""

OnDuplicate = Literal["keep", "refuse", "replace"]
"""The result of an enqueue when another job holds the key."""

WhenFull = Literal["refuse", "sideline"]
"""The result of an enqueue to a full queue."""

FOREVER = timedelta(days=3600)
"""A TTL this long never ends: PostgreSQL's 10 years of 12 months of 30 days."""


def seconds(duration: Seconds) -> float:
    """Convert a duration to seconds; it has to be finite."""
    number = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if not math.isfinite(number):
        raise InvalidArgument(f"a duration is a finite number of seconds, not {number}")
    return number


def lifetime(ttl: Seconds | None) -> float:
    """Convert a TTL to seconds. None never ends; others have to be above 0."""
    span = seconds(FOREVER if ttl is None else ttl)
    if span <= 0:
        raise InvalidArgument(f"a ttl is above 0 seconds, not {span:g}", hint="give None for jobs that never expire")
    return min(span, seconds(FOREVER))


def moment(name: str, value: datetime, error: type[DibsError] = InvalidArgument) -> datetime:
    """Check that a time has a zone: without one it would mean another moment on each machine."""
    if not isinstance(value, datetime):
        raise error(f"{name} is a datetime, not a {type(value).__name__}")
    if value.utcoffset() is None:
        raise error(f"{name} is {value}, which has no time zone", hint="give one, such as tzinfo=datetime.UTC")
    return value


class Backoff(msgspec.Struct, frozen=True):
    """The delays after failed attempts: made by ``constant``, ``progressive`` or ``exponential``."""

    kind: Literal["constant", "list", "exponential"]
    delays: tuple[float, ...]
    factor: float = 2.0
    cap: float | None = None
    jitter: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the form that the SQL functions take."""
        return {
            "kind": self.kind,
            "delays": self.delays,
            "factor": self.factor,
            "cap": self.cap,
            "jitter": self.jitter,
        }


def constant(delay: Seconds, *, jitter: float = 0.0) -> Backoff:
    """Wait the same time after each failure."""
    return Backoff("constant", (seconds(delay),), jitter=jitter)


def progressive(delays: Sequence[Seconds], *, jitter: float = 0.0) -> Backoff:
    """Wait these times in turn; the last one repeats."""
    return Backoff("list", tuple(seconds(d) for d in delays), jitter=jitter)


def exponential(base: Seconds = 1.0, *, factor: float = 2.0, cap: Seconds = 3600.0, jitter: float = 0.1) -> Backoff:
    """Wait ``base``, then ``factor`` times longer after each failure, up to ``cap``; up to ``jitter`` of it less.

    Without arguments it is the default of a queue.
    """
    return Backoff("exponential", (seconds(base),), factor, seconds(cap), jitter)


class QueuePolicy(TypedDict, total=False):
    """The settings of a queue. Omitted settings stay as they are."""

    priority: int
    lease: Seconds
    lease_growth: float
    lease_cap: Seconds
    max_attempts: int
    max_losses: int
    backoff: Backoff
    ttl: Seconds | None
    payload_limit: int
    history: History
    retention: Seconds
    history_retention: Seconds
    ring: bool
    exclusive: bool
    shards: int | None
    shard_lease: Seconds
    max_depth: int | None
    max_age: Seconds | None
    when_full: WhenFull
    newest_first: bool
    noisy_share: float | None


class GroupPolicy(TypedDict, total=False):
    """The settings of a group. Omitted settings stay as they are; None removes a limit."""

    weight: int
    concurrency: int | None
    rate: float | None
    burst: int | None
    max_depth: int | None
    max_age: Seconds | None


class JobChanges(TypedDict, total=False):
    """The changes to a job that waits or is dead. Omitted options stay as they are."""

    payload: Any
    priority: int
    due_at: datetime
    delay: Seconds
