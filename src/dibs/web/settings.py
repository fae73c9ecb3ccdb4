"""What can be set of a dashboard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

HIDDEN = "•••"


@dataclass(frozen=True, slots=True)
class Settings:
    """What is shown, and how long a page may take."""

    mask: frozenset[str] = frozenset()
    hide_payloads: bool = False
    timeout: float = 5.0
    poll: float = 3.0
    target: float = 300.0

    def shown(self, value: Any) -> Any:
        """A payload, result or the like as people may see it: hidden, or with the masked keys covered.

        What is nested too deeply to be looked through is hidden, too.
        """
        if self.hide_payloads and value is not None:
            return HIDDEN
        try:
            return _masked(value, self.mask)
        except RecursionError:
            return HIDDEN


def _masked(value: Any, mask: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {name: HIDDEN if name.casefold() in mask else _masked(v, mask) for name, v in value.items()}
    if isinstance(value, list):
        return [_masked(v, mask) for v in value]
    return value
