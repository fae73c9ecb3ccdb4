"""The states of a job, defined once. SQL, CLI and docs agree with this file by a test."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """What a job is now, as shown to people."""

    SCHEDULED = "scheduled"  # due later: its first time, a retry, or a snooze
    READY = "ready"  # due now, waiting for a worker
    BLOCKED = "blocked"  # due now, waiting for a slot of a limit
    RUNNING = "running"  # held by a worker
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # dead: the handler said it can never work
    EXHAUSTED = "exhausted"  # dead: no attempts left
    EXPIRED = "expired"  # dead: past its TTL or deadline
    CANCELLED = "cancelled"  # dead: on request
    UNKNOWN = "unknown"  # never committed, or pruned

    @property
    def is_dead(self) -> bool:
        """Whether the job ended badly and can be redriven."""
        return self in DEAD

    @property
    def has_ended(self) -> bool:
        """Whether the job is over: dead or succeeded."""
        return self is State.SUCCEEDED or self in DEAD


WAITING = frozenset({State.SCHEDULED, State.READY, State.BLOCKED})
DEAD = frozenset({State.FAILED, State.EXHAUSTED, State.EXPIRED, State.CANCELLED})


class Outcome(StrEnum):
    """How one run ended, as the history keeps it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"
    SNOOZED = "snoozed"
    RELEASED = "released"
    CANCELLED = "cancelled"
