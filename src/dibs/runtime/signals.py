"""Signals that ask this process to stop."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STOPS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def obeying(stop: Callable[[], None], hurry: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Call ``stop`` on the first SIGTERM or Ctrl-C and ``hurry`` on each later one; for the main thread's loop."""
    loop = asyncio.get_running_loop()
    asked = False

    def obey() -> None:
        nonlocal asked
        (hurry if asked else stop)()
        asked = True

    for number in STOPS:
        loop.add_signal_handler(number, obey)
    try:
        yield
    finally:
        for number in STOPS:
            loop.remove_signal_handler(number)
