"""Work that a cancellation does not interrupt."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

_running: set[asyncio.Task[Any]] = set()
"""The event loop keeps no reference to a task, and after a cancellation nobody else does."""


async def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Wait for work. If we are cancelled meanwhile, it runs on to its end."""
    task = asyncio.ensure_future(work)
    _running.add(task)
    task.add_done_callback(_running.discard)
    return await asyncio.shield(task)
