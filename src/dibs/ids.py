"""Job ids: UUIDv7 by the database's clock, made by the client so that an enqueue can be repeated safely."""

from __future__ import annotations

import os
import sys
import threading
import time
import uuid
from array import array


class IdMaker:
    """Makes ids that sort in the order they were made, by a clock ``ahead`` seconds ahead of ours."""

    def __init__(self, ahead: float = 0.0) -> None:
        self._ahead_us = round(ahead * 1e6)
        self._last = 0
        self._lock = threading.Lock()

    def make(self, count: int) -> list[uuid.UUID]:
        """Make ``count`` ids, each 1/4096 ms after the last."""
        made = self.make_bytes(count)
        return [uuid.UUID(bytes=made[n : n + 16]) for n in range(0, len(made), 16)]

    def make_digits(self) -> str:
        """Make one id, as 32 hex digits: quicker than a UUID."""
        return self.make_bytes(1).hex()

    def make_bytes(self, count: int) -> bytes:
        """Make ids, as 16 bytes each."""
        first = self._take(count)
        halves = array("Q", bytes(16 * count))
        halves[::2] = array("Q", [tick >> 12 << 16 | 7 << 12 | tick & 0xFFF for tick in range(first, first + count)])
        halves[1::2] = array("Q", [noise >> 2 | 1 << 63 for noise in array("Q", os.urandom(8 * count))])
        if sys.byteorder == "little":
            halves.byteswap()
        return halves.tobytes()

    def _take(self, count: int) -> int:
        """Take the next ticks of 1/4096 ms. Return the first."""
        us = time.time_ns() // 1000 + self._ahead_us
        with self._lock:
            first = max(us // 1000 * 4096 + us % 1000 * 4096 // 1000, self._last + 1)
            self._last = first + count - 1
        return first


def id_time(id: uuid.UUID) -> float:
    """Return the time when an id was made, in seconds since 1970."""
    return (id.int >> 80) / 1000
