"""Sleeping until a time has passed or someone wakes us."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

FAST_POLLS = (0.005, 0.01, 0.02, 0.04)
"""How many seconds to wait before each look after a ring: a commit that overlapped the ringer's may not have rung."""

Wait = Callable[[asyncio.Event, float], Awaitable[None]]
"""Waits for the event, at most that many seconds."""


async def wait_for(woken: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, or when the time has passed."""
    try:
        async with asyncio.timeout(seconds):
            await woken.wait()
    except TimeoutError:
        pass
