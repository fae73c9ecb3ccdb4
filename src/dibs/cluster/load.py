"""How much a process uses of its machine, from what the system counts anyway."""

from __future__ import annotations

import os
import time
from pathlib import Path

_STATM = Path("/proc/self/statm")


class Load:
    """How busy this process was between two looks, and how much memory it uses."""

    def __init__(self) -> None:
        self._seen = self._look()

    def cpu(self) -> float | None:
        """How many processors it kept busy since the last look, such as 0.25; None if hardly any time has passed."""
        (busy, at), seen = self._seen, self._look()
        if seen[1] - at < 0.1:
            return None
        self._seen = seen
        return round(max(0.0, seen[0] - busy) / (seen[1] - at), 3)

    @staticmethod
    def _look() -> tuple[float, float]:
        return time.process_time(), time.monotonic()


def memory() -> int | None:
    """How many bytes of memory this process uses; None where the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
