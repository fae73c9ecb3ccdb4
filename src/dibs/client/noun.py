# Written by tools/unasync.py from noun_async.py: change that and run `make sync`.
"""A part of the client: the calls about one noun, such as ``client.queues``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from dibs.db.calls import Call

R = TypeVar("R")


class Run(Protocol):
    """Sends a call to the database and returns its answer."""

    def __call__(self, call: Call[R]) -> R:
        """Send one call."""
        ...


class Noun:
    """The calls about one noun; all of them go through the client that it belongs to."""

    def __init__(self, run: Run) -> None:
        self._run = run
