"""Several loops that start and stop together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dibs.runtime.ending import end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.runtime.loop import Loop

GRACE = 5.0
"""Seconds after a stop until a step that still runs is cancelled."""


class Service:
    """Runs loops until told to stop, and leaves none behind."""

    def __init__(self, loops: Sequence[Loop], *, grace: float = GRACE) -> None:
        self._loops = loops
        self._grace = grace

    async def run(self, until: asyncio.Event) -> None:
        """Run all loops until the event is set. If a loop ends before that, stop the others; raise its error if any."""
        tasks = {asyncio.create_task(loop.run(), name=loop.name) for loop in self._loops}
        stopped = asyncio.create_task(until.wait())
        try:
            try:
                await asyncio.wait({*tasks, stopped}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for loop in self._loops:
                    loop.stop()
            if tasks:
                await asyncio.wait(tasks, timeout=self._grace)
        finally:
            await end([*tasks, stopped])
        for task in tasks:
            if not task.cancelled():
                task.result()
