"""Waiting on facts that nothing announces."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SHORTEST, LONGEST = 0.01, 0.1
SHARE = 3
"""A condition that costs more is asked less often: the questions must not slow down what is waited for."""


def wait_until(condition: Callable[[], object], *, timeout: float = 30.0, what: str) -> None:
    """Return once the condition is true; fail, naming what was awaited, if it is not in time."""
    began = time.monotonic()
    until = began + timeout
    while not condition():
        now = time.monotonic()
        if now > until:
            raise AssertionError(f"not after {timeout:.0f} s: {what}")
        time.sleep(min(max(SHORTEST, SHARE * (now - began)), LONGEST))
        began = time.monotonic()
