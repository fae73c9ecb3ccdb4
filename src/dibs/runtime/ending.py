"""Ending tasks."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

CANCEL_EVERY = 1.0
"""A task that goes on is cancelled again after this many seconds."""


async def end(tasks: Iterable[asyncio.Task[Any]], *, within: float = math.inf) -> None:
    """Cancel tasks and wait until all have ended or the time is over. Their exceptions are dropped.

    One cancellation is not enough: before Python 3.12 ``asyncio.wait_for``, with which connection pools wait, may
    swallow it.
    """
    ended, left = set(), set(tasks)
    until = time.monotonic() + within
    while left:
        for task in left:
            task.cancel()
        done, left = await asyncio.wait(left, timeout=min(CANCEL_EVERY, max(0.0, until - time.monotonic())))
        ended |= done
        if time.monotonic() >= until:
            break
    for task in ended:
        if not task.cancelled():
            task.exception()


async def wait_at_most(awaited: Coroutine[Any, Any, object] | asyncio.Future[Any], within: float) -> None:
    """Wait for this, at most so long; then cancel it and return without waiting for its end. Raise what it raises."""
    task = asyncio.ensure_future(awaited)
    done, _ = await asyncio.wait({task}, timeout=within)
    if done:
        task.result()
    else:
        task.cancel()


def error_of(task: asyncio.Task[None]) -> BaseException:
    """Why a task ended that should have gone on."""
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    return error or RuntimeError(f"{task.get_name()} returned")


async def drop_cancellations(me: asyncio.Task[Any]) -> None:
    """Undo the cancellations of the current task, also one that asyncio would raise at its next ``await``."""
    while me.cancelling():
        me.uncancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
