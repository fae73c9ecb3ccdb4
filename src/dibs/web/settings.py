"""The settings of a dashboard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dibs.mask import HIDDEN, covered


@dataclass(frozen=True, slots=True)
class Settings:
    """The content of the pages, and the time that a page may take."""

    mask: frozenset[str] = frozenset()
    hide_payloads: bool = False
    timeout: float = 5.0
    poll: float = 3.0
    target: float = 300.0

    def shown(self, value: Any) -> Any:
        """A payload, result or the like as people may see it: hidden, or with the masked keys covered."""
        if self.hide_payloads and value is not None:
            return HIDDEN
        return covered(value, self.mask)
