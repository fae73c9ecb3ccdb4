"""Job ids: UUIDv7 by the database's clock, made by the client so that an enqueue can be repeated safely."""

from __future__ import annotations

import os
import threading
import time
import uuid

_VERSION = 0x7000
_VARIANT = 0x8000_0000_0000_0000
_RANDOM = 0x3FFF_FFFF_FFFF_FFFF


class IdMaker:
    """Makes ids that sort in the order they were made, by a clock ``ahead`` seconds ahead of ours."""

    def __init__(self, ahead: float = 0.0) -> None:
        self._ahead_us = round(ahead * 1e6)
        self._last = 0
        self._lock = threading.Lock()

    def make(self, count: int) -> list[uuid.UUID]:
        """Make ``count`` ids, each 1/4096 ms after the last."""
        us = time.time_ns() // 1000 + self._ahead_us
        with self._lock:
            first = max(us // 1000 * 4096 + us % 1000 * 4096 // 1000, self._last + 1)
            self._last = first + count - 1
        noise = os.urandom(8 * count)
        return [
            uuid.UUID(
                int=(tick >> 12) << 80
                | (_VERSION | tick & 0xFFF) << 64
                | _VARIANT
                | int.from_bytes(noise[8 * n : 8 * n + 8]) & _RANDOM
            )
            for n, tick in enumerate(range(first, first + count))
        ]


def id_time(id: uuid.UUID) -> float:
    """When an id was made, in seconds since 1970."""
    return (id.int >> 80) / 1000
