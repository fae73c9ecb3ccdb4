"""A claim that is cancelled half-way must not leave its jobs leased to nobody."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from dibs.job import Claimed


async def kept(
    claiming: Coroutine[Any, Any, list[Claimed]], give_back: Callable[[list[Claimed]], Awaitable[Any]]
) -> list[Claimed]:
    """What was claimed; if we are cancelled meanwhile, the claim goes on to its end and is then given back."""
    task = asyncio.ensure_future(claiming)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if jobs := await task:
            await give_back(jobs)
        raise
