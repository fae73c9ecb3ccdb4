"""What a round of upkeep did, as facts to be logged or counted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from dibs.db.database_async import AsyncDatabase


@dataclass(frozen=True, slots=True)
class ChoreDone:
    """A round of a chore: what it counted, and how many seconds until the next."""

    chore: str
    again: float
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def anything(self) -> bool:
        """Whether there was anything to do."""
        return any(self.counts.values())


@dataclass(frozen=True, slots=True)
class ChoreFailed:
    """A round that failed, ``failures`` times in a row; it is tried again in ``again`` seconds."""

    chore: str
    error: Exception
    failures: int
    again: float


Chore = Callable[[AsyncDatabase], Awaitable[ChoreDone]]
Listener = Callable[[ChoreDone | ChoreFailed], None]
