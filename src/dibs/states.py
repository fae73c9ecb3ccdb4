"""The states of a job and the answers of verbs, defined once. SQL, CLI and docs agree with this file by a test."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The state of a job, as shown to people."""

    SCHEDULED = "scheduled"  # due later: its first time, a retry, or a snooze
    READY = "ready"  # due now, waiting for a worker
    BLOCKED = "blocked"  # due now, waiting for a limit, or for a worker that runs its kind
    RUNNING = "running"  # held by a worker
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # dead: the handler said it can never work
    EXHAUSTED = "exhausted"  # dead: no attempts left
    EXPIRED = "expired"  # dead: past its TTL or deadline
    CANCELLED = "cancelled"  # dead: on request
    UNKNOWN = "unknown"  # never committed, or pruned

    @property
    def is_dead(self) -> bool:
        """True if the job ended badly and can come back."""
        return self in DEAD

    @property
    def has_ended(self) -> bool:
        """True if the job is dead or has succeeded."""
        return self is State.SUCCEEDED or self in DEAD


WAITING = frozenset({State.SCHEDULED, State.READY, State.BLOCKED})
DEAD = frozenset({State.FAILED, State.EXHAUSTED, State.EXPIRED, State.CANCELLED})


class Outcome(StrEnum):
    """The end of one run, as the history keeps it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"
    SNOOZED = "snoozed"
    RELEASED = "released"
    CANCELLED = "cancelled"


class Answer(StrEnum):
    """The answer of a verb for one job or schedule; it is not a state."""

    OK = "ok"
    ALREADY = "already"  # the same token did that before
    LOST = "lost"  # this token does not hold the job
    CANCEL = "cancel"  # done, but the job is to stop
    BUSY = "busy"  # locked; try again
    ENQUEUED = "enqueued"
    DUPLICATE = "duplicate"  # another job has the id or the dedup key
    REPLACED = "replaced"  # enqueued in the place of a job that waited
    SIDELINED = "sidelined"  # enqueued behind all others, since the queue is full
    CANCELLED = "cancelled"
    REQUESTED = "requested"  # its holder is asked to stop
    ENDED = "ended"  # too late
    UNKNOWN = "unknown"  # no such job
    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    TRIGGERED = "triggered"
    SKIPPED = "skipped"  # by its overlap policy
