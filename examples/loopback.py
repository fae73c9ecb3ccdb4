"""Real servers on loopback for channels to speak to: SMTP by aiosmtpd, HTTP by the standard library."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from email.message import EmailMessage
    from types import TracebackType


@dataclass
class Mailbox:
    """The record of an SMTP server: each message accepted, by its Message-ID."""

    messages: list[EmailMessage] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    """The answers to the next messages; after them, all are accepted."""
    failing: float = 0.0
    """The share of messages that are turned away for the time being, at random."""
    turned_away: int = 0
    refused: set[str] = field(default_factory=set)
    accepted: Callable[[], None] | None = None
    dice: random.Random = field(default_factory=lambda: random.Random(5))

    @property
    def counts(self) -> Counter[str]:
        """Return how often each message was accepted."""
        return Counter(str(m["Message-ID"]) for m in self.messages)

    async def handle_RCPT(  # noqa: N802
        self, server: Any, session: Any, envelope: Any, address: str, options: list[str]
    ) -> str:
        if address in self.refused:
            return "550 5.1.1 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        if self.rules and (rule := self.rules.pop(0)):
            if rule == "hang up":
                server.transport.abort()
            return rule
        if self.dice.random() < self.failing:
            self.turned_away += 1
            return "451 4.3.0 try again"
        content = message_from_bytes(envelope.content, policy=policy.default)
        self.messages.append(content)
        self.recipients.append(envelope.rcpt_tos)
        if self.accepted is not None:
            self.accepted()
        return "250 2.0.0 accepted"


class MailServer:
    """An SMTP server for as long as the block lasts."""

    def __init__(
        self, mailbox: Mailbox | None = None, *, tls: ssl.SSLContext | None = None, login: tuple[str, str] | None = None
    ) -> None:
        self.mailbox = mailbox or Mailbox()
        self._login = login
        options: dict[str, Any] = {"enable_SMTPUTF8": True}
        if tls is not None:
            options |= {"tls_context": tls, "require_starttls": True}
        if login is not None:
            options |= {"authenticator": self._check, "auth_required": True, "auth_require_tls": tls is not None}
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="smtp")

    def _check(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        good = (data.login.decode(), data.password.decode()) == self._login
        return AuthResult(success=good, handled=good)

    @property
    def environment(self) -> dict[str, str]:
        """Return the settings with which a channel connects to it, without TLS."""
        return {
            "DIBS_SMTP_HOST": "127.0.0.1", "DIBS_SMTP_PORT": str(self.port), "DIBS_SMTP_TLS": "none",
            "DIBS_EMAIL_FROM": "shop@example.org", "DIBS_SMTP_TIMEOUT": "5",
        }  # fmt: skip

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> None:
        def make() -> SMTP:
            return SMTP(self.mailbox, loop=self._loop, **self._options)

        self._server = await self._loop.create_server(make, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: str


class WebServer:
    """An HTTP server for as long as the block lasts; ``answers`` are given in turn, and then 201."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answers: list[tuple[int, dict[str, str], Any]] = []
        mine = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                mine.requests.append(Request(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                number = len(mine.requests)
                accepted = {"sid": f"SM{number}", "status": "queued", "data": {"ids": [number]}}
                default: tuple[int, dict[str, str], Any] = (201, {}, accepted)
                status, headers, said = mine.answers.pop(0) if mine.answers else default
                if status == 0:
                    self.connection.close()
                    return
                text = json.dumps(said).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(text))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
