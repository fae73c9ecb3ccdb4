"""What came of an attempt, to be sent back in batches."""

from __future__ import annotations

import time
import traceback
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from dibs.job import Claimed  # noqa: TC001 - msgspec reads it
from dibs.retry import Snooze

if TYPE_CHECKING:
    from dibs.client.context import Context
    from dibs.retry import Retry

Verb = Literal["complete", "fail", "snooze", "release", "none"]
"""What is to be called; ``none`` when the handler's own transaction has completed the job."""


class Report(msgspec.Struct, frozen=True):
    """One attempt's end: what becomes of the job, and what goes with that."""

    job: Claimed
    verb: Verb
    result: Any = None
    error: str | None = None
    final: bool = False
    delay: float | None = None
    follow_ups: tuple[dict[str, Any], ...] = ()
    ran: float = 0.0
    ended: float = msgspec.field(default_factory=time.monotonic)

    @property
    def is_too_late(self) -> bool:
        """Whether the lease has run out by now, renewed as it was at most when the attempt ended."""
        return time.monotonic() - self.ended > self.job.lease


def succeeded(here: Context, result: Any, began: float) -> Report:
    """The handler returned."""
    ran = time.monotonic() - began
    if here.completed:
        return Report(here.job, "none", ran=ran)
    if not here.follow_ups:
        return Report(here.job, "complete", here.result if result is None else result, ran=ran)
    follow_ups = tuple(job.as_json(job.id, inline=True) for job in here.follow_ups)
    return Report(here.job, "complete", here.result if result is None else result, follow_ups=follow_ups, ran=ran)


def failed(here: Context, retry: Retry, error: BaseException, began: float, *, final: bool = False) -> Report:
    """The handler raised."""
    ran = time.monotonic() - began
    if here.completed:
        return Report(here.job, "none", error=_told(error), ran=ran)
    if isinstance(error, Snooze):
        return Report(here.job, "snooze", delay=error.delay, ran=ran)
    return Report(
        here.job,
        "fail",
        error=_told(error),
        final=final or retry.ends(error),
        delay=retry.delay(error),
        ran=ran,
    )


def _told(error: BaseException) -> str:
    text = "".join(traceback.format_exception_only(error)).strip()
    trace = "".join(traceback.format_tb(error.__traceback__))
    return f"{text}\n{trace}"
