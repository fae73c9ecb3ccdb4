"""Ending tasks."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

AGAIN = 1.0
"""A task that goes on is cancelled again after this many seconds."""


async def end(tasks: Iterable[asyncio.Task[Any]], *, within: float = math.inf) -> None:
    """Cancel tasks, and return when all have ended or the time is over; what they raised is dropped.

    Once is not enough: before Python 3.12 ``asyncio.wait_for``, with which connection pools wait, may swallow a
    cancellation.
    """
    ended, left = set(), set(tasks)
    until = time.monotonic() + within
    while left:
        for task in left:
            task.cancel()
        done, left = await asyncio.wait(left, timeout=min(AGAIN, max(0.0, until - time.monotonic())))
        ended |= done
        if time.monotonic() >= until:
            break
    for task in ended:
        if not task.cancelled():
            task.exception()


async def limited(doing: Coroutine[Any, Any, object] | asyncio.Future[Any], within: float) -> None:
    """Wait for this, but not for longer: what has not ended then is cancelled and left. What it raises is raised."""
    task = asyncio.ensure_future(doing)
    done, _ = await asyncio.wait({task}, timeout=within)
    if done:
        task.result()
    else:
        task.cancel()
