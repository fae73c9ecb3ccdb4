"""The result of a step of upkeep, to be logged or counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec


class ChoreDone(msgspec.Struct, frozen=True):
    """A step of a chore ended: what it counted, and in how many seconds the next one is due (``again``).

    ``more`` is true if the next step has work now. ``outcome`` is ``done``, ``early`` if the chore was not due,
    or ``busy`` if another process is doing it.
    """

    chore: str
    again: float
    counts: Mapping[str, int] = {}
    more: bool = False
    outcome: str = "done"

    @property
    def anything(self) -> bool:
        """True if the step did anything."""
        return any(self.counts.values())


class ChoreFailed(msgspec.Struct, frozen=True):
    """A step failed, for the ``failures``-th time in a row. It is tried again in ``again`` seconds."""

    chore: str
    error: Exception
    failures: int
    again: float


Listener = Callable[[ChoreDone | ChoreFailed], None]
