"""Several loops that start and stop together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.runtime.loop import Loop

GRACE = 5.0
"""How many seconds a running step has to end after a stop, before it is cancelled."""


class Service:
    """Runs loops until told to stop, and leaves none behind."""

    def __init__(self, loops: Sequence[Loop], *, grace: float = GRACE) -> None:
        self._loops = loops
        self._grace = grace

    async def run(self, until: asyncio.Event) -> None:
        """Run all loops until the event is set; a loop that breaks stops the others and raises."""
        tasks = {asyncio.create_task(loop.run(), name=loop.name) for loop in self._loops}
        told = asyncio.create_task(until.wait())
        try:
            await asyncio.wait({*tasks, told}, return_when=asyncio.FIRST_COMPLETED)
            for loop in self._loops:
                loop.stop()
            if tasks:
                await asyncio.wait(tasks, timeout=self._grace)
        finally:
            await _end({*tasks, told})
        for task in tasks:
            if not task.cancelled():
                task.result()


async def _end(tasks: set[asyncio.Task[None] | asyncio.Task[bool]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
