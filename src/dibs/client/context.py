"""The context of a handler: facts about its attempt, progress, follow-ups and transactions."""

from __future__ import annotations

import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from dibs.errors import DibsError
from dibs.progress import progress_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from uuid import UUID

    from dibs.client.transaction import Databases, Transaction
    from dibs.db.connection import AsyncConnection, Connection
    from dibs.job import Claimed, NewJob

    Note = Callable[[Claimed, dict[str, Any]], None]
    SendStop = Callable[["StopReason"], None]

T = TypeVar("T")

StopReason = Literal["timeout", "stopping", "cancelled", "lost"]
"""The reason why a run should stop: its soft timeout, its worker stops, a cancel, or a lost lease."""

_current: ContextVar[Context] = ContextVar("dibs_context")


class Context:
    """One attempt, as its handler sees it. A batch handler sees its first attempt, and all of them in ``batch``."""

    __slots__ = (
        "_batch", "_began", "_databases", "_has_failed", "_is_completing", "_note", "_send_stop", "_stop_reason",
        "completed", "follow_ups", "job", "result",
    )  # fmt: skip

    def __init__(self, job: Claimed, databases: Databases | None = None, note: Note | None = None) -> None:
        self.job = job
        self.follow_ups: list[NewJob] = []
        self.result: Any = None
        self.completed = False
        self._is_completing = False
        self._has_failed = False  # A channel has failed the job in its own transaction.
        self._batch: tuple[Context, ...] = ()
        self._began = time.monotonic()
        self._stop_reason: StopReason | None = None
        self._databases = databases
        self._note = note
        self._send_stop: SendStop | None = None

    @property
    def batch(self) -> tuple[Context, ...]:
        """All attempts of a batch handler's call; otherwise only this one."""
        return self._batch or (self,)

    @property
    def id(self) -> UUID:
        """The job's id."""
        return self.job.id

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self.job.attempt

    @property
    def is_last_attempt(self) -> bool:
        """True if a failure of this attempt exhausts the job."""
        return self.job.is_last_attempt

    @property
    def deadline(self) -> datetime | None:
        """The time by which the job must have started, if it has a deadline."""
        return self.job.deadline

    @property
    def should_stop(self) -> bool:
        """True if this run should end soon; ``stop_reason`` is the reason.

        Check it now and then: a plain function cannot be interrupted. ``raise dibs.Snooze(0)`` to give the job back
        uncharged. A cancelled job ends as cancelled, unless its handler returns.
        """
        return self._stop_reason is not None

    @property
    def stop_reason(self) -> StopReason | None:
        """The reason to stop, if there is one: ``timeout``, ``stopping``, ``cancelled`` or ``lost``."""
        return self._stop_reason

    def enqueue(self, job: NewJob) -> None:
        """Enqueue a follow-up together with this job's completion: both or neither."""
        self._still_open("enqueue a follow-up")
        self.follow_ups.append(job)

    def progress(
        self,
        done: float | None = None,
        of: float | None = 1,
        *,
        message: str | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """Report progress: ``0.3`` of 1, or ``3`` of ``10``. It is sent within a second.

        Of several reports only the last is sent. See ``Job.watch`` to follow it.
        """
        if self._note is not None:
            self._note(self.job, progress_json(done, of, message=message, data=data))

    @overload
    def transaction(self) -> Transaction[AsyncConnection, Connection]: ...

    @overload
    def transaction(self, conn: T) -> Transaction[T, T]: ...

    def transaction(self, conn: Any = None) -> Transaction[Any, Any]:
        """Return a transaction whose commit also completes the job, for ``async with`` or ``with``.

        It is on ``conn``, a connection or session of SQLAlchemy, Django, asyncpg or psycopg; without it, on a psycopg
        connection of the worker's. Its writes happen exactly once: if the lease was lost meanwhile, they are rolled
        back and ``LeaseLost`` is raised. To keep a result, set ``result`` before the block ends; the handler's return
        value is ignored, because the job has ended by then.
        """
        from dibs.client.transaction import Transaction

        self._still_open("begin a transaction")
        if conn is not None:
            return Transaction(self, None, conn)
        if self._databases is None:
            raise DibsError("there is no database here", hint="ctx.transaction() is for handlers a worker runs")
        return Transaction(self, self._databases)

    def _still_open(self, what: str) -> None:
        if self.completed or self._is_completing:
            raise DibsError(f"job {self.id} is completed already, or about to be; it is too late to {what}")


def context() -> Context:
    """Return the context of the running attempt."""
    try:
        return _current.get()
    except LookupError:
        raise DibsError("there is no attempt here", hint="call dibs.context() in a handler a worker runs") from None


def running() -> Context | None:
    """Return the context of the running attempt, if there is one."""
    return _current.get(None)


enter: Callable[[Context], Any] = _current.set
"""Make a context the current one of this task or thread."""


def tell_stop(here: Context, why: StopReason) -> None:
    """Ask a run to stop, wherever its handler runs. The last reason counts."""
    here._stop_reason = why
    if here._send_stop is not None:
        here._send_stop(why)
