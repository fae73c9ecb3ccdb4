"""Waiting on facts that nothing announces."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

POLL = 0.01


def wait_until(condition: Callable[[], object], *, timeout: float = 30.0, what: str) -> None:
    """Return once the condition is true; fail, naming what was awaited, if it is not in time."""
    until = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"not after {timeout:.0f} s: {what}")
        time.sleep(POLL)
