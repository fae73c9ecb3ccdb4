"""For development: messages are shown, not sent."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec

from dibs.channels.messages import read

if TYPE_CHECKING:
    from dibs.channels.messages import Email, Sms


class Console:
    """Writes each message to standard error."""

    name = "console"

    def __init__(self, shape: type[Email | Sms]) -> None:
        self._shape = shape

    async def send(self, message: dict[str, Any], key: str) -> dict[str, Any]:
        """Show the message, after the same checks as for a real one."""
        read(message, self._shape)
        sys.stderr.write(f"{self._shape.__name__.lower()} {key}: {msgspec.json.encode(message).decode()}\n")
        return {"id": key}

    async def close(self) -> None:
        """Do nothing."""
