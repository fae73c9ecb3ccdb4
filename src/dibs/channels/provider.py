"""The interface of a provider, which sends the messages of a channel."""

from __future__ import annotations

from typing import Any, Protocol


class Provider(Protocol):
    """Sends messages: an SMTP server, a service behind HTTP, a terminal."""

    name: str

    async def send(self, message: dict[str, Any], key: str) -> dict[str, Any]:
        """Hand one message over and return what is worth knowing of it, its ``id`` first of all.

        ``key`` is the same each time the message is sent, so that a recipient can recognise a duplicate. Raise
        ``Refusal``, ``Throttled`` or ``NotSent``; any other error leaves open whether the message went out.
        """

    async def close(self) -> None:
        """Let go of connections."""


class Refusal(Exception):
    """The provider will never take this message."""


class NotSent(Exception):
    """The message certainly did not go out this time; it may the next."""


class Throttled(NotSent):
    """The provider wants to be left alone, for ``after`` seconds if it said so. The message did not go out."""

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after
