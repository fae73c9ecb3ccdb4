"""The interface of a provider, which sends the messages of a channel."""

from __future__ import annotations

from typing import Any, Protocol


class Provider(Protocol):
    """A sender of messages: an SMTP server, a service behind HTTP, a terminal."""

    name: str

    async def send(self, message: dict[str, Any], key: str) -> dict[str, Any]:
        """Send one message. Return a receipt, most of all its ``id``.

        ``key`` is equal each time the message is sent, so that a recipient can recognise a duplicate. Raise
        ``Refusal``, ``Throttled`` or ``NotSent``. After any other error it is unknown whether the message went out.
        """

    async def close(self) -> None:
        """Close the connections."""


class Refusal(Exception):
    """The provider will never take this message."""


class NotSent(Exception):
    """The message did not go out, and another attempt may succeed."""


class Throttled(NotSent):
    """The provider asks for a pause, of ``after`` seconds if it says so. The message did not go out."""

    def __init__(self, message: str, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after
