"""Messages, read strictly: one that does not fit is refused, and the error names the field."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from dibs.channels.provider import Refusal

M = TypeVar("M", bound=msgspec.Struct)


class Attachment(msgspec.Struct, forbid_unknown_fields=True):
    """A file: its ``content`` in base64, or its ``text``."""

    filename: str
    content: bytes | None = None
    text: str | None = None
    content_type: str | None = None


class Email(msgspec.Struct, forbid_unknown_fields=True):
    """An e-mail. It needs a recipient, and a text, an HTML body or both."""

    to: str | list[str]
    subject: str = ""
    text: str | None = None
    html: str | None = None
    sender: str | None = msgspec.field(default=None, name="from")
    reply_to: str | None = None
    cc: str | list[str] = []
    bcc: str | list[str] = []
    headers: dict[str, str] = {}
    attachments: list[Attachment] = []


class Sms(msgspec.Struct, forbid_unknown_fields=True):
    """A text message."""

    to: str
    text: str
    sender: str | None = msgspec.field(default=None, name="from")


def read(message: dict[str, Any], shape: type[M]) -> M:
    """Read a message into the type of its channel."""
    try:
        return msgspec.convert(message, shape)
    except msgspec.ValidationError as error:
        raise Refusal(f"the message is not a valid {shape.__name__.lower()}: {error}") from None
