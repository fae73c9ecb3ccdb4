"""E-mails in the format of SMTP."""

from __future__ import annotations

import mimetypes
import re
from dataclasses import dataclass
from email import policy
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.parser import BytesHeaderParser
from email.utils import localtime, parseaddr
from typing import TYPE_CHECKING

from dibs.channels.provider import Refusal

if TYPE_CHECKING:
    from dibs.channels.messages import Attachment, Email

RESERVED = {
    "from", "to", "cc", "bcc", "subject", "date", "message-id", "reply-to", "sender", "return-path", "mime-version",
    "idempotency-key",
}  # fmt: skip
"""Headers for which a message has fields, or that belong to the mailer."""
TRACES = ("resent-", "received", "dkim-", "domainkey-", "arc-", "authentication-results", "delivered-to")
"""Beginnings of headers that mail servers write. In our message they would be forged."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_LOCAL = re.compile(r"[\w!#$%&'*+/=?^`{|}~.-]+")
_DOMAIN = re.compile(r"(?!-)[a-z0-9-]+(\.[a-z0-9-]+)*|\[(ipv6:)?[0-9a-f.:]+\]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Wire:
    """A message for an SMTP server: sender, recipients, and bytes."""

    sender: str
    recipients: tuple[str, ...]
    content: bytes
    message_id: str
    utf8: bool


def compose(email: Email, default_sender: str | None, key: str) -> Wire:
    """Build an e-mail. Its Message-ID comes from the key, so that a recipient can recognise a duplicate."""
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
        made["From"], made["To"], made["Subject"] = origin, to, _plain("subject", email.subject)
        if cc:
            made["Cc"] = cc
        if email.reply_to:
            made["Reply-To"] = _address(email.reply_to)
        made["Date"], made["Message-ID"], made["Idempotency-Key"] = localtime(), message_id, key
        for name, value in email.headers.items():
            made[_header(made, name)] = _plain(f"header {name}", value)
        _fill(made, email)
        content = _written(made)
    except (MessageError, ValueError, LookupError) as error:
        raise Refusal(f"the message cannot be written as an e-mail: {error}") from None
    return Wire(origin.addr_spec, everyone, content, message_id, utf8)


def _written(made: EmailMessage) -> bytes:
    """Return the message as bytes. Read its headers back, and refuse it if their names are not those we set.

    The names differ if a value has a line break in it, which adds a header or ends the headers too early.
    """
    content = made.as_bytes()
    read_back = BytesHeaderParser().parsebytes(content)
    if read_back.keys() != made.keys():
        raise Refusal("the message has a value that would be read as another header")
    return content


def _plain(what: str, text: str) -> str:
    """Return a text unchanged, or refuse it: the email package decodes encoded words, which may contain line breaks."""
    if "=?" in text:
        raise Refusal(f"the {what} has =? in it, which begins an encoded word; write the characters themselves")
    if _CONTROL.search(text):
        raise Refusal(f"the {what} has line breaks or control characters")
    return text


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
    filename = _plain("file name of an attachment", attachment.filename)
    content = (attachment.text or "").encode() if attachment.content is None else attachment.content
    guessed = attachment.content_type or mimetypes.guess_type(filename)[0] or "application/octet-stream"
    if not re.fullmatch(r"(?!multipart/)[a-z0-9.+-]+/[a-z0-9.+-]+", guessed, re.IGNORECASE):
        raise Refusal(f"attachment {filename!r} has the content type {guessed!r}, which no file has")
    main, _, sub = guessed.partition("/")
    made.add_attachment(content, maintype=main, subtype=sub, filename=filename)


def _addresses(field: str | list[str]) -> tuple[Address, ...]:
    return tuple(_address(text) for text in ([field] if isinstance(field, str) else field))


def _address(text: str) -> Address:
    """Parse exactly one address, with or without a name."""
    name, spec = parseaddr(_plain("address", text))
    local, _, domain = spec.rpartition("@")
    try:
        host = domain if domain.isascii() else domain.encode("idna").decode()
        alone = text.strip() == spec or text.strip().endswith(f"<{spec}>")
        if alone and _LOCAL.fullmatch(local) and _DOMAIN.fullmatch(host):
            return Address(name, local, host)
    except (ValueError, IndexError):
        pass
    raise Refusal(f"{text!r} is not an e-mail address")


def _header(made: EmailMessage, name: str) -> str:
    if not re.fullmatch(r"[!-9;-~]{1,70}", name):
        raise Refusal(f"{name!r} is not the name of a header")
    if name.lower() in RESERVED or name.lower().startswith("content-"):
        raise Refusal(f"the header {name} is not the message's to set; use its own field")
    if name.lower().startswith(TRACES):
        raise Refusal(f"the header {name} is for mail servers to write")
    if name in made:
        raise Refusal(f"the header {name} is given twice")
    return name
