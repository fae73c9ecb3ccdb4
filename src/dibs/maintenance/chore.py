"""What a round of upkeep did, as facts to be logged or counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec


class ChoreDone(msgspec.Struct, frozen=True):
    """A step of a chore: what it counted, how many seconds until the next, and whether there is more to do now.

    ``outcome`` is ``done``, ``early`` when it was not due, or ``busy`` when another process is doing it.
    """

    chore: str
    again: float
    counts: Mapping[str, int] = {}
    more: bool = False
    outcome: str = "done"

    @property
    def anything(self) -> bool:
        """Whether there was anything to do."""
        return any(self.counts.values())


class ChoreFailed(msgspec.Struct, frozen=True):
    """A step that failed, ``failures`` times in a row; it is tried again in ``again`` seconds."""

    chore: str
    error: Exception
    failures: int
    again: float


Listener = Callable[[ChoreDone | ChoreFailed], None]
