# Written by tools/unasync.py from handle_async.py: change that and run `make sync`.
"""Handles on jobs: read the status of a job, wait for it, cancel it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import msgspec

from dibs.errors import JobEnded, WaitTimeout
from dibs.job import no_such_job
from dibs.results import read_result
from dibs.states import Answer, State

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from dibs.client.client import Client
    from dibs.progress import Status

R_co = TypeVar("R_co", covariant=True)

SHORTEST, LONGEST = 0.01, 0.25
"""Seconds between the looks of a wait for a job's end, at first and at last."""


class Job(msgspec.Struct, Generic[R_co], frozen=True):
    """A handle on a job, and the type of its result; ``is_new`` is false if it was there already."""

    client: Client
    id: UUID
    is_new: bool = True
    outcome: Answer = Answer.ENQUEUED
    returns: Any = Any

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}{'' if self.outcome is Answer.ENQUEUED else f' {self.outcome}'}>"

    def status(self) -> Status:
        """Return its state, attempts and progress, and its result as JSON."""
        return self.client.status(self.id)

    def result(self) -> R_co | None:
        """Return the result of its last successful run; None before that, and where no history is kept.

        Raises UnknownJob if there is no such job, or none that is committed.
        """
        status = self.status()
        if status.state is State.UNKNOWN:
            raise no_such_job(self.id)
        return self._read(status)

    def _read(self, status: Status) -> R_co | None:
        read: R_co | None = read_result(status.result, self.returns)
        return read

    def wait(self, timeout: float = 60.0) -> R_co:
        """Wait until it has ended and return its result; a bad end raises JobEnded, none in time WaitTimeout.

        A job that is unknown may be about to be committed, so it is waited for, too.
        """
        end = time.monotonic() + timeout
        pause = SHORTEST
        while not (status := self.status()).state.has_ended:
            left = end - time.monotonic()
            if left <= 0:
                raise WaitTimeout(
                    f"job {self.id} is still {status.state} after {timeout:g} s", hint=self.client.why(self.id)
                )
            time.sleep(min(pause, left))
            pause = min(pause * 2, LONGEST)
        if status.state.is_dead:
            raise JobEnded(f"job {self.id} ended as {status.state}", hint=self.client.why(self.id))
        return cast("R_co", self._read(status))

    def watch(self, *, poll: float = 0.5) -> Iterator[Status]:
        """Yield its status now and after each change, until it has ended."""
        return self.client.watch(self.id, poll=poll)

    def cancel(self, reason: str = "cancelled by request") -> Answer:
        """Cancel it, or ask its holder to stop."""
        return self.client.cancel(self.id, reason)
