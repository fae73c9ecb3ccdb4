"""Ending tasks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

AGAIN = 1.0
"""A task that goes on is cancelled again after this many seconds."""


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and return when all have ended; what they raised is dropped.

    Once is not enough: before Python 3.12 ``asyncio.wait_for``, with which connection pools wait, may swallow a
    cancellation.
    """
    ended, left = set(), set(tasks)
    while left:
        for task in left:
            task.cancel()
        done, left = await asyncio.wait(left, timeout=AGAIN)
        ended |= done
    for task in ended:
        if not task.cancelled():
            task.exception()
