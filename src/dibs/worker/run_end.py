"""How a run ended, and what is to be told the database about it."""

from __future__ import annotations

import time
import traceback
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from dibs.errors import InvalidArgument
from dibs.job import Claimed  # noqa: TC001 - msgspec reads it
from dibs.results import result_of
from dibs.retry import Snooze

if TYPE_CHECKING:
    from types import TracebackType

    from dibs.client.context import Context
    from dibs.retry import Retry

LONGEST = 32_768
"""How many characters are kept of an error's message, so that there is room for its trace."""

Verb = Literal["complete", "fail", "snooze", "release", "park", "none"]
"""The verb to call; ``none`` when the handler's own transaction has completed the job."""


class RunEnd(msgspec.Struct, frozen=True):
    """The end of one run, not yet sent: the verb to call, and its arguments."""

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
        """Whether the lease has expired by now, even if it was renewed just before the run ended."""
        return time.monotonic() - self.ended > self.job.lease


def succeeded(here: Context, retry: Retry, result: Any, began: float) -> RunEnd:
    """The handler returned; a result that JSON cannot hold is a failure after all."""
    ran = time.monotonic() - began
    if here.completed:
        return RunEnd(here.job, "none", ran=ran)
    try:
        kept = here.result if result is None else result_of(result)
    except InvalidArgument as error:
        return failed(here, retry, error, began, final=True)
    if not here.follow_ups:
        return RunEnd(here.job, "complete", kept, ran=ran)
    follow_ups = tuple(job.as_json(job.id, inline=True) for job in here.follow_ups)
    return RunEnd(here.job, "complete", kept, follow_ups=follow_ups, ran=ran)


def failed(here: Context, retry: Retry, error: BaseException, began: float, *, final: bool = False) -> RunEnd:
    """The handler raised."""
    ran = time.monotonic() - began
    if here.completed:
        return RunEnd(here.job, "none", error=_told(error), ran=ran)
    if isinstance(error, Snooze):
        return RunEnd(here.job, "snooze", delay=error.delay, ran=ran)
    return RunEnd(
        here.job,
        "fail",
        error=_told(error),
        final=final or retry.ends(error),
        delay=retry.delay(error),
        ran=ran,
    )


def _told(error: BaseException) -> str:
    text = "".join(traceback.format_exception_only(error)).strip()[:LONGEST]
    trace = "".join(traceback.format_tb(_from_handler(error.__traceback__)))
    return f"{text}\n{trace}"


def _from_handler(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the worker's own frames, which come first, unless there are no others."""
    first = trace
    while first is not None and first.tb_frame.f_globals.get("__name__", "").startswith("dibs.worker."):
        first = first.tb_next
    return first or trace
