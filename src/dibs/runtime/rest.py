"""How long to pause after expensive work."""

from __future__ import annotations

REST = 20
"""Rest this many times as long as the work took, so that it takes at most a twentieth of the time; as the SQL function
``dibs._cooldown`` does for upkeep and look-backs."""


def rest_after(took: float) -> float:
    """Return the seconds to rest after work that took ``took`` seconds."""
    return REST * took
