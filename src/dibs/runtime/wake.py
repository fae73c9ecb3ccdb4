"""Sleeps that an event ends early."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

FAST_POLLS = (0.005, 0.01, 0.02, 0.04)
"""The seconds to wait before each look after a ring. Of commits that overlap, only one may ring, and not the last."""

Wait = Callable[[asyncio.Event, float], Awaitable[None]]
"""Waits for an event, at most that many seconds."""


async def wait_for(woken: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, or when the time has passed."""
    try:
        async with asyncio.timeout(seconds):
            await woken.wait()
    except TimeoutError:
        pass
