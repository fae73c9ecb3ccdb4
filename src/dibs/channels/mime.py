"""An e-mail as it goes over the wire."""

from __future__ import annotations

import mimetypes
import re
from dataclasses import dataclass
from email import policy
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import localtime, parseaddr
from typing import TYPE_CHECKING

from dibs.channels.provider import Refusal

if TYPE_CHECKING:
    from dibs.channels.messages import Attachment, Email

OURS = {"from", "to", "cc", "bcc", "subject", "date", "message-id", "reply-to", "sender", "return-path", "mime-version"}
"""Headers that a message has fields for, or that are the mailer's own."""


@dataclass(frozen=True, slots=True)
class Wire:
    """What an SMTP server is told: who it is from, whom to, and the bytes."""

    sender: str
    recipients: tuple[str, ...]
    content: bytes
    message_id: str
    utf8: bool


def compose(email: Email, default_sender: str | None, key: str) -> Wire:
    """Put an e-mail together; the key is its Message-ID, so that a recipient can recognise a duplicate."""
    sender = email.sender or default_sender
    if sender is None:
        raise Refusal("the message has no sender: give it a from, or set DIBS_EMAIL_FROM")
    if email.text is None and email.html is None:
        raise Refusal("the message has neither text nor html")
    origin = _address(sender)
    to, cc, bcc = (_addresses(field) for field in (email.to, email.cc, email.bcc))
    everyone = tuple(dict.fromkeys(a.addr_spec for a in (*to, *cc, *bcc)))
    if not everyone:
        raise Refusal("the message has no recipient")
    utf8 = not all(a.isascii() for a in (origin.addr_spec, *everyone))
    made = EmailMessage(policy.SMTPUTF8 if utf8 else policy.SMTP)
    message_id = f"<{key}@{origin.domain}>"
    try:
        made["From"], made["To"], made["Subject"] = origin, to, email.subject
        if cc:
            made["Cc"] = cc
        if email.reply_to:
            made["Reply-To"] = _address(email.reply_to)
        made["Date"], made["Message-ID"] = localtime(), message_id
        made["Idempotency-Key"] = key
        for name, value in email.headers.items():
            made[_header(name)] = value
    except (ValueError, IndexError) as error:
        raise Refusal(f"the message has a header that cannot be sent: {error}") from None
    _fill(made, email)
    return Wire(origin.addr_spec, everyone, made.as_bytes(), message_id, utf8)


def _fill(made: EmailMessage, email: Email) -> None:
    if email.text is not None:
        made.set_content(email.text)
        if email.html is not None:
            made.add_alternative(email.html, subtype="html")
    elif email.html is not None:
        made.set_content(email.html, subtype="html")
    for attachment in email.attachments:
        _attach(made, attachment)


def _attach(made: EmailMessage, attachment: Attachment) -> None:
    if (attachment.content is None) == (attachment.text is None):
        raise Refusal(f"attachment {attachment.filename!r} needs either content in base64 or a text")
    if re.search(r"[\x00-\x1f\x7f]", attachment.filename):
        raise Refusal("an attachment's file name has control characters")
    content = (attachment.text or "").encode() if attachment.content is None else attachment.content
    guessed = attachment.content_type or mimetypes.guess_type(attachment.filename)[0] or "application/octet-stream"
    if not re.fullmatch(r"[\w.+-]+/[\w.+-]+", guessed):
        raise Refusal(f"attachment {attachment.filename!r} has the content type {guessed!r}, which is none")
    main, _, sub = guessed.partition("/")
    made.add_attachment(content, maintype=main, subtype=sub, filename=attachment.filename)


def _addresses(field: str | list[str]) -> tuple[Address, ...]:
    return tuple(_address(text) for text in ([field] if isinstance(field, str) else field))


def _address(text: str) -> Address:
    """One address, with or without a name; anything that is not exactly one is refused."""
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise Refusal(f"{text!r} is not an e-mail address: it has control characters")
    name, spec = parseaddr(text)
    local, at, domain = spec.rpartition("@")
    if not at or not local or not domain or re.search(r"[\s,;<>()]", spec) or text.count("@") != 1 + name.count("@"):
        raise Refusal(f"{text!r} is not an e-mail address")
    try:
        host = domain if domain.isascii() else domain.encode("idna").decode()
        return Address(name, local, host)
    except (ValueError, IndexError):
        raise Refusal(f"{text!r} is not an e-mail address") from None


def _header(name: str) -> str:
    if not re.fullmatch(r"[!-9;-~]{1,70}", name):
        raise Refusal(f"{name!r} is not the name of a header")
    if name.lower() in OURS or name.lower().startswith("content-"):
        raise Refusal(f"the header {name} is not the message's to set; use its own field")
    return name
