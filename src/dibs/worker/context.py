"""What a handler may know of its own attempt, and do beside returning."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from dibs.errors import DibsError

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from dibs.job import Claimed, NewJob

_current: ContextVar[Context] = ContextVar("dibs_context")


class Context:
    """One attempt, as its handler sees it."""

    __slots__ = ("follow_ups", "job", "progress", "stopping")

    def __init__(self, job: Claimed) -> None:
        self.job = job
        self.follow_ups: list[NewJob] = []
        self.progress: Any = None
        self.stopping = False

    @property
    def id(self) -> UUID:
        """The job's id."""
        return self.job.id

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self.job.attempt

    @property
    def is_last_attempt(self) -> bool:
        """Whether a failure of this attempt would exhaust the job."""
        return self.job.is_last_attempt

    @property
    def deadline(self) -> datetime | None:
        """When the job must have ended, if it must."""
        return self.job.deadline

    def enqueue(self, job: NewJob) -> None:
        """Enqueue a follow-up together with this job's completion: both or neither."""
        self.follow_ups.append(job)


def context() -> Context:
    """The attempt that is running here."""
    try:
        return _current.get()
    except LookupError:
        raise DibsError("there is no attempt here", hint="call dibs.context() in a handler a worker runs") from None


def enter(job: Claimed) -> Context:
    """Begin an attempt."""
    made = Context(job)
    _current.set(made)
    return made
