"""A part of the client: the calls about one noun, such as ``client.queues``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from dibs.db.calls import Call

R = TypeVar("R")


class AsyncRun(Protocol):
    """Sends a call to the database and returns its answer."""

    async def __call__(self, call: Call[R]) -> R:
        """Send one call."""
        ...


class AsyncNoun:
    """The calls about one noun; all of them go through the client that it belongs to."""

    def __init__(self, run: AsyncRun) -> None:
        self._run = run
