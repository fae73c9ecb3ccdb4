"""Blocking calls on an event loop: said once, since they work and only everything else stands still."""

from __future__ import annotations

import sys
import warnings
from asyncio import _get_running_loop

from dibs.errors import BlocksLoop

_INSTEAD = {
    "Task.enqueue": "`await aenqueue(…)`",
    "Task.enqueue_many": "`await aenqueue_many(…)`",
    "App.enqueue_many": "`await aenqueue_many(…)`",
    "RemoteTask.enqueue": "`await aenqueue(…)`",
    "Client.enqueue": "`await enqueue(…)` of a dibs.AsyncClient",
    "Client.enqueue_many": "`await enqueue_many(…)` of a dibs.AsyncClient",
    "MessageQueue.send": "the message queue of a dibs.AsyncClient",
    "MessageQueue.send_many": "the message queue of a dibs.AsyncClient",
}
"""The ways in, and what to call in their place on an event loop."""

_told: set[str] = set()


def expect_no_loop() -> None:
    """Warn of an enqueue that keeps an event loop waiting, once in this process for each way in."""
    if _get_running_loop() is not None:
        _warn()


def _warn() -> None:
    way, level = _way_in()
    if way not in _told:
        _told.add(way)
        warnings.warn(
            f"{way} keeps the event loop waiting for the database; use {_INSTEAD[way]} instead", BlocksLoop, level
        )


def _way_in() -> tuple[str, int]:
    """The method that was called from outside, and how many frames above the warning its caller is."""
    way, level = "Client.enqueue", 2
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and not str(frame.f_globals.get("__name__")).startswith("asyncio."):
        name = frame.f_code.co_qualname
        if name in _INSTEAD and str(frame.f_globals.get("__name__")).startswith("dibs.client."):
            way, level = name, depth + 1
        frame, depth = frame.f_back, depth + 1
    return way, level
