"""E-mail over SMTP. Connections are kept for the next message."""

from __future__ import annotations

import contextlib
import re
import ssl
from typing import TYPE_CHECKING, Any

from dibs.channels.messages import Email, read
from dibs.channels.mime import Wire, compose
from dibs.channels.provider import NotSent, Refusal, Throttled
from dibs.errors import InvalidArgument

try:
    import aiosmtplib
except ImportError as error:  # pragma: no cover
    raise InvalidArgument("e-mail over SMTP needs aiosmtplib", hint="pip install 'dibs[channels]'") from error

if TYPE_CHECKING:
    from dibs.channels.environment import Environment

PORTS = {"starttls": 587, "tls": 465, "none": 25}
KEPT = 10
"""The number of idle connections that are kept."""
_SLOW_DOWN = re.compile(r"4\.7\.\d")
"""The enhanced status, with which an answer begins, of "not now, by policy": greylisting and rate limits."""


class Smtp:
    """Sends e-mail to one server."""

    name = "smtp"

    def __init__(self, environment: Environment) -> None:
        self._sender = environment.get("DIBS_EMAIL_FROM")
        tls = environment.get("DIBS_SMTP_TLS", "starttls") or ""
        if tls not in PORTS:
            raise InvalidArgument(f"DIBS_SMTP_TLS is {tls!r}", hint=f"it is one of {', '.join(PORTS)}")
        user = environment.get("DIBS_SMTP_USER")
        password = environment.secret("DIBS_SMTP_PASSWORD", "DIBS_SMTP_USER" if user else None)
        if user and tls == "none" and not environment.get("DIBS_SMTP_PLAIN_PASSWORD"):
            raise InvalidArgument(
                "DIBS_SMTP_TLS is none, so the password would cross the network as plain text",
                hint="use starttls or tls; or set DIBS_SMTP_PLAIN_PASSWORD=1 if the server is on this machine",
            )
        self._options: dict[str, Any] = {
            "hostname": environment.need("DIBS_SMTP_HOST", "e-mail over SMTP"),
            "port": int(environment.number("DIBS_SMTP_PORT", PORTS[tls])),
            "use_tls": tls == "tls",
            "start_tls": tls == "starttls",
            "timeout": environment.number("DIBS_SMTP_TIMEOUT", 30),
            "username": user,
            "password": password,
            "tls_context": None
            if tls == "none"
            else ssl.create_default_context(cafile=environment.get("DIBS_SMTP_CA")),
        }
        self._idle: list[aiosmtplib.SMTP] = []

    async def send(self, message: dict[str, Any], key: str) -> dict[str, Any]:
        """Send one e-mail."""
        wire = compose(read(message, Email), self._sender, key)
        server, refused = await self._begin_mail(wire)
        try:
            # After the content has begun, a lost connection leaves open whether the server has accepted it.
            answer = await server.data(wire.content)
        except aiosmtplib.SMTPDataError as error:
            self._give_back(server)
            raise _meaning(error) from None
        except BaseException:
            server.close()
            raise
        self._give_back(server)
        return {"id": wire.message_id, "answer": answer.message, **({"refused": refused} if refused else {})}

    async def close(self) -> None:
        """Close the connections."""
        while self._idle:
            with contextlib.suppress(aiosmtplib.SMTPException, OSError):
                await self._idle.pop().quit(timeout=1)

    async def _begin_mail(self, wire: Wire) -> tuple[aiosmtplib.SMTP, dict[str, str]]:
        """Return a connection on which the server has taken the sender and a recipient, and the refused recipients.

        No content was sent, so the message certainly did not go out if this raises Refusal or NotSent.
        """
        while self._idle:
            server = self._idle.pop()
            try:
                if not await _is_usable(server):
                    server.close()
                    continue
                return server, await _announce(server, wire)
            except (aiosmtplib.SMTPServerDisconnected, aiosmtplib.SMTPTimeoutError, OSError):
                server.close()  # It hung up while we were idle: try the next connection.
            except aiosmtplib.SMTPResponseException as error:
                self._give_back(server)
                raise _meaning(error) from None
            except BaseException:
                server.close()
                raise
        return await self._begin_on_new_connection(wire)

    async def _begin_on_new_connection(self, wire: Wire) -> tuple[aiosmtplib.SMTP, dict[str, str]]:
        server = await self._connect()
        try:
            return server, await _announce(server, wire)
        except aiosmtplib.SMTPResponseException as error:
            self._give_back(server)
            raise _meaning(error) from None
        except (aiosmtplib.SMTPException, OSError) as error:
            server.close()
            raise _unreachable(error) from None
        except BaseException:
            server.close()
            raise

    async def _connect(self) -> aiosmtplib.SMTP:
        """Connect and log in. An error here is about the server or our settings, and never about the message."""
        server = aiosmtplib.SMTP(**self._options)
        try:
            await server.connect()
            # Without TLS and login connect() sends no EHLO. RSET does: its answer lists the extensions.
            await server.rset()
        except aiosmtplib.SMTPAuthenticationError as error:
            server.close()
            raise NotSent(f"the mail server refused our login: {error.code} {error.message}") from None
        except aiosmtplib.SMTPResponseException as error:
            server.close()
            meaning = _meaning(error)
            if isinstance(meaning, Refusal):
                meaning = NotSent(f"the mail server refused the connection: {meaning}")
            raise meaning from None
        except (aiosmtplib.SMTPException, OSError) as error:
            server.close()
            raise _unreachable(error) from None
        except BaseException:
            server.close()
            raise
        return server

    def _give_back(self, server: aiosmtplib.SMTP) -> None:
        """Keep a connection for the next message, unless the server has ended it or enough are kept."""
        if server.is_connected and len(self._idle) < KEPT:
            self._idle.append(server)
        else:
            server.close()


async def _is_usable(server: aiosmtplib.SMTP) -> bool:
    """Return whether an idle connection can carry another message. A refusal here is not about the message."""
    try:
        await server.rset()
    except (aiosmtplib.SMTPException, OSError):
        return False
    return True


async def _announce(server: aiosmtplib.SMTP, wire: Wire) -> dict[str, str]:
    """Announce sender and recipients. Return the refused recipients; raise if all are refused."""
    if wire.utf8 and not server.supports_extension("smtputf8"):
        raise Refusal("an address is not ASCII, and the mail server does not take such")
    options, encoding = (["SMTPUTF8"], "utf-8") if wire.utf8 else ([], "ascii")
    await server.mail(wire.sender, options=options, encoding=encoding)
    refused: dict[str, str] = {}
    # If one recipient may be taken later, the whole message is worth another attempt.
    mildest: aiosmtplib.SMTPResponseException | None = None
    for recipient in wire.recipients:
        try:
            await server.rcpt(recipient, encoding=encoding)
        except aiosmtplib.SMTPRecipientRefused as error:
            refused[recipient] = f"{error.code} {error.message}"
            mildest = error if mildest is None or error.code < mildest.code else mildest
    if mildest is not None and len(refused) == len(wire.recipients):
        raise mildest
    return refused


def _unreachable(error: Exception) -> NotSent:
    return NotSent(f"the mail server cannot be reached: {type(error).__name__}: {error}")


def _meaning(error: aiosmtplib.SMTPResponseException) -> Exception:
    message = f"{error.code} {error.message}"
    if error.code >= 500:
        return Refusal(message)
    if error.code == 421 or _SLOW_DOWN.match(error.message):
        return Throttled(message)
    return NotSent(message)
