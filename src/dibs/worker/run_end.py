"""How a run ended: the verb that reports it, and the verb's arguments."""

from __future__ import annotations

import time
import traceback
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from dibs.db.calls.call import clean
from dibs.errors import InvalidArgument
from dibs.job import Claimed  # noqa: TC001 - msgspec reads it
from dibs.results import result_of
from dibs.retry import Snooze

if TYPE_CHECKING:
    from types import TracebackType

    from dibs.client.context import Context
    from dibs.retry import Retry

LONGEST_MESSAGE = 32_768
"""The most characters of an error's message that are kept, so that there is room for its trace."""

Verb = Literal["complete", "fail", "snooze", "release", "park", "none"]
"""The verb to call; ``none`` if the handler's own transaction has ended the job: ``final`` if it failed."""


class RunEnd(msgspec.Struct, frozen=True):
    """The end of one run that is to be sent. ``ran`` is the seconds that the handler took."""

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
        """True if the lease has expired, even if it was renewed just before the run ended."""
        return time.monotonic() - self.ended > self.job.lease


def succeeded(context: Context, retry: Retry, result: Any, began: float) -> RunEnd:
    """The end of a run whose handler returned. A result that JSON cannot hold is a failure."""
    ran = time.monotonic() - began
    if context.completed:
        return RunEnd(context.job, "none", ran=ran)
    try:
        result = context.result if result is None else result_of(result)
    except InvalidArgument as error:
        return failed(context, retry, error, began, final=True)
    if not context.follow_ups:
        return RunEnd(context.job, "complete", result, ran=ran)
    follow_ups = tuple(job.as_json(job.id, inline=True) for job in context.follow_ups)
    return RunEnd(context.job, "complete", result, follow_ups=follow_ups, ran=ran)


def failed(context: Context, retry: Retry, error: BaseException, began: float, *, final: bool = False) -> RunEnd:
    """The end of a run whose handler raised."""
    ran = time.monotonic() - began
    if context.completed:
        return RunEnd(context.job, "none", error=_error_text(error), final=context._has_failed, ran=ran)
    if isinstance(error, Snooze):
        return RunEnd(context.job, "snooze", delay=error.delay, ran=ran)
    return RunEnd(
        context.job,
        "fail",
        error=_error_text(error),
        final=final or retry.ends(error),
        delay=retry.delay(error),
        ran=ran,
    )


def _error_text(error: BaseException) -> str:
    text = "".join(traceback.format_exception_only(error)).strip()[:LONGEST_MESSAGE]
    trace = "".join(traceback.format_tb(_from_handler(error.__traceback__)))
    return clean(f"{text}\n{trace}")


def _from_handler(trace: TracebackType | None) -> TracebackType | None:
    """Drop the worker's own frames, which come first, unless there are no others."""
    first = trace
    while first is not None and first.tb_frame.f_globals.get("__name__", "").startswith("dibs.worker."):
        first = first.tb_next
    return first or trace
