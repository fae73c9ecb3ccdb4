"""Job ids: UUIDv7 by the database's clock, made by the client so that an enqueue can be repeated safely."""

from __future__ import annotations

import os
import threading
import time
import uuid

_VARIANT = str.maketrans("0123456789abcdef", "89ab" * 4)
"""The two highest bits of a hexadecimal digit, made 10."""


class IdMaker:
    """Makes ids that sort in the order they were made, by a clock ``ahead`` seconds ahead of ours."""

    def __init__(self, ahead: float = 0.0) -> None:
        self._ahead_us = round(ahead * 1e6)
        self._last = 0
        self._lock = threading.Lock()

    def make(self, count: int) -> list[uuid.UUID]:
        """Make ``count`` ids, each 1/4096 ms after the last."""
        return [uuid.UUID(int=int(digits, 16)) for digits in self.make_digits(count)]

    def make_digits(self, count: int) -> list[str]:
        """The same as 32 hexadecimal digits each, which is quicker."""
        first = self._take(count)
        noise = os.urandom(8 * count).hex()
        variants = noise[::16].translate(_VARIANT)
        return [
            f"{tick >> 12:012x}7{tick & 0xFFF:03x}{variants[n]}{noise[16 * n + 1 : 16 * n + 16]}"
            for n, tick in enumerate(range(first, first + count))
        ]

    def make_one(self) -> str:
        """The digits of one id."""
        tick = self._take(1)
        noise = os.urandom(8).hex()
        return f"{tick >> 12:012x}7{tick & 0xFFF:03x}{noise[0].translate(_VARIANT)}{noise[1:]}"

    def _take(self, count: int) -> int:
        """The first of so many ticks of 1/4096 ms that were not taken before."""
        us = time.time_ns() // 1000 + self._ahead_us
        with self._lock:
            first = max(us // 1000 * 4096 + us % 1000 * 4096 // 1000, self._last + 1)
            self._last = first + count - 1
        return first


def id_time(id: uuid.UUID) -> float:
    """When an id was made, in seconds since 1970."""
    return (id.int >> 80) / 1000
