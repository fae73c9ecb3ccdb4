"""A provider for development: it shows messages and sends none."""

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
        """Check the message as a real provider does, and show it."""
        read(message, self._shape)
        sys.stderr.write(f"{self._shape.__name__.lower()} {key}: {msgspec.json.encode(message).decode()}\n")
        return {"id": key}

    async def close(self) -> None:
        """Do nothing."""
