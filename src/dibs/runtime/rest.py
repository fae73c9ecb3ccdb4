"""How long to leave alone what takes long."""

from __future__ import annotations

REST = 20
"""Rest this many times as long as the work took, so that it costs at most a twentieth of the time, as in SQL."""


def rest_after(took: float) -> float:
    """Seconds to rest after work that took that many seconds."""
    return REST * took
