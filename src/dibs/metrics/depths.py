"""The depths of the queues, read from the database on demand, and not too often."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

from dibs.errors import DibsError

if TYPE_CHECKING:
    from dibs.info import Depth

EVERY = 1.0
"""The database is asked at most this often, in seconds, however many scrapers there are."""
PATIENCE = 2.0
"""Seconds to wait for its answer. One that comes later is kept for the next request."""


class Counts(Protocol):
    """Whatever knows the depth of every queue, such as an ``AsyncClient``."""

    async def depths(self) -> list[Depth]: ...  # noqa: D102


class Depths:
    """The depth of every queue, as last read."""

    def __init__(self, client: Counts) -> None:
        self._client = client
        self._asked = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._read_at = float("-inf")
        self._depths: list[Depth] | None = None

    async def latest(self) -> tuple[list[Depth], float] | None:
        """The depths and how many seconds ago they were read; None if the last try to read them failed."""
        now = time.monotonic()
        if self._asking is None and now - self._asked >= EVERY:
            self._asked = now
            self._asking = asyncio.create_task(self._ask(), name="depths")
        asking = self._asking
        if asking is not None:
            await asyncio.wait({asking}, timeout=PATIENCE)
            if asking.done():
                asking.result()
        return None if self._depths is None else (self._depths, time.monotonic() - self._read_at)

    async def _ask(self) -> None:
        began = time.monotonic()
        try:
            self._depths = await self._client.depths()
            self._read_at = began
        except DibsError:
            self._depths = None
        finally:
            self._asking = None
