"""The processor time and the memory that this process uses, as the system counts them."""

from __future__ import annotations

import os
import time
from pathlib import Path

_STATM = Path("/proc/self/statm")


class Load:
    """Measures how busy this process was between two looks."""

    def __init__(self) -> None:
        self._busy, self._looked_at = time.process_time(), time.monotonic()

    def cpu(self) -> float | None:
        """The processors kept busy since the last call that returned a number; None if hardly any time has passed."""
        busy, now = time.process_time(), time.monotonic()
        passed = now - self._looked_at
        if passed < 0.1:
            return None
        load = max(0.0, busy - self._busy) / passed
        self._busy, self._looked_at = busy, now
        return round(load, 3)


def memory() -> int | None:
    """The bytes of memory that this process uses; None where the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
