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

PERIOD = 1.0
"""Seconds between two reads, at least, however many scrapers there are."""
PATIENCE = 2.0
"""Seconds that a request waits for an answer. An answer that comes later is kept for the next request."""
STALE = 6
"""An answer this many times older than its period is stale: a request waits for a newer one."""

log = logging.getLogger("dibs.metrics")


class Reading(Generic[R]):
    """The last answer of the database, which is read again after ``every`` seconds, :data:`PERIOD` by default.

    A reading with its own ``every`` takes long, so a request waits for it only if the last answer is stale. The others
    are quick, so a request waits for each new answer. While a read is under way longer than that, the last answer is
    shown with its age. After a read that failed there is none.
    """

    def __init__(self, name: str, ask: Callable[[], Awaitable[R]], every: float | None = None) -> None:
        self.name = name
        self._ask = ask
        self._every = every
        self._asked = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._read: tuple[R, float] | None = None

    async def latest(self) -> tuple[R, float] | None:
        """Return the last answer and its age in seconds; None if the last read failed, or none has been answered."""
        now = time.monotonic()
        if self._asking is None and now - self._asked >= (PERIOD if self._every is None else self._every):
            self._asked = now
            self._asking = asyncio.create_task(self._look(), name=self.name)
        if self._asking is not None and not self._may_stay(now):
            await asyncio.wait({self._asking}, timeout=PATIENCE)
        return None if self._read is None else (self._read[0], time.monotonic() - self._read[1])

    def _may_stay(self, now: float) -> bool:
        """True if a request need not wait for the answer that is under way."""
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
