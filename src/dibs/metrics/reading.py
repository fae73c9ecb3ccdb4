"""Numbers that are read from the database on demand, and not too often."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from dibs.errors import DibsError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

R = TypeVar("R")

EVERY = 1.0
"""The least time between two reads, in seconds, however many scrapers there are."""
PATIENCE = 2.0
"""Seconds to wait for its answer. One that comes later is kept for the next request."""

STALE = 6
"""An answer this many times older than its period is too old to be shown."""

log = logging.getLogger("dibs.metrics")


class Reading(Generic[R]):
    """The last answer of the database.

    It is read again after ``every`` seconds, :data:`EVERY` by default. A reading with its own ``every`` takes long:
    while the last answer is not :data:`STALE`, nobody waits for the next one.
    """

    def __init__(self, name: str, ask: Callable[[], Awaitable[R]], every: float | None = None) -> None:
        self.name = name
        self._ask = ask
        self._every = every
        self._asked = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._read: tuple[R, float] | None = None

    async def latest(self) -> tuple[R, float] | None:
        """Return the answer and its age in seconds; None if the last read failed or is still under way."""
        now = time.monotonic()
        if self._asking is None and now - self._asked >= (EVERY if self._every is None else self._every):
            self._asked = now
            self._asking = asyncio.create_task(self._look(), name=self.name)
        if self._asking is not None and not self._is_good_enough(now):
            await asyncio.wait({self._asking}, timeout=PATIENCE)
        return None if self._read is None else (self._read[0], time.monotonic() - self._read[1])

    def _is_good_enough(self, now: float) -> bool:
        return self._every is not None and self._read is not None and now - self._read[1] < STALE * self._every

    def close(self) -> None:
        """Stop waiting for an answer."""
        if self._asking is not None:
            self._asking.cancel()

    async def _look(self) -> None:
        began = time.monotonic()
        try:
            self._read = (await self._ask(), began)
        except DibsError as error:
            log.debug("%s could not be read: %s", self.name, error)
            self._read = None
        except Exception:
            log.exception("%s could not be read", self.name)
            self._read = None
        finally:
            self._asking = None
