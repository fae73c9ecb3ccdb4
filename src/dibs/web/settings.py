"""The settings of a dashboard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dibs.mask import HIDDEN, covered


@dataclass(frozen=True, slots=True)
class Settings:
    """The masked keys, and times in seconds: of a statement, between two polls, and the target of due jobs."""

    mask: frozenset[str] = frozenset()
    hide_payloads: bool = False
    timeout: float = 5.0
    poll: float = 3.0
    target: float = 300.0

    def cover(self, value: Any) -> Any:
        """Cover a payload, result or the like: all of it, or the values of masked keys."""
        if self.hide_payloads and value is not None:
            return HIDDEN
        return covered(value, self.mask)
