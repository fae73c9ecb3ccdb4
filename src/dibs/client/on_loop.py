"""Warnings about blocking calls on an event loop. They work, but all other tasks of the loop wait."""

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
"""The blocking methods, and the async method to call instead on an event loop."""

_told: set[str] = set()


def expect_no_loop() -> None:
    """Warn of an enqueue that blocks an event loop, once in this process for each blocking method."""
    if _get_running_loop() is not None:
        _warn()


def _warn() -> None:
    method, stacklevel = _outermost_method()
    if method not in _told:
        _told.add(method)
        warnings.warn(
            f"{method} keeps the event loop waiting for the database; use {_INSTEAD[method]} instead",
            BlocksLoop,
            stacklevel,
        )


def _outermost_method() -> tuple[str, int]:
    """Return the blocking method that the application called, and the stack level at which the warning names it."""
    method, stacklevel = "Client.enqueue", 2
    frame, depth = sys._getframe(1), 1
    # Go from caller to caller, out to the event loop. The last method that is found called those found before.
    while frame.f_back is not None and not str(frame.f_globals.get("__name__")).startswith("asyncio."):
        name = frame.f_code.co_qualname
        if name in _INSTEAD and str(frame.f_globals.get("__name__")).startswith("dibs.client."):
            method, stacklevel = name, depth + 1
        frame, depth = frame.f_back, depth + 1
    return method, stacklevel
