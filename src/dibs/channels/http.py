"""One HTTP request, by the standard library in a thread, and the meaning of its answer."""

from __future__ import annotations

import asyncio
import http.client
import io
import ipaddress
import re
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from dibs.channels.provider import NotSent, Refusal, Throttled
from dibs.errors import InvalidArgument

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

THREADS = 20
LARGEST = 1_000_000
"""The number of bytes of an answer that are read."""
LONGEST_WAIT = 86400.0
DEFAULT_PORTS = {"http": http.client.HTTP_PORT, "https": http.client.HTTPS_PORT}
_VISIBLE = re.compile(r"[!-~]+")
"""Visible ASCII characters, without spaces: all that a request may have in its host and path."""


class Unanswered(Exception):
    """The request was sent, and it is unknown whether it was handled."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    text: str

    def json(self) -> Any:
        """The answer as JSON; None if it is no JSON, or was cut."""
        try:
            return msgspec.json.decode(self.text)
        except (msgspec.DecodeError, RecursionError):
            return None


class Http:
    """Makes requests to one address. It follows no redirect, which could carry a secret elsewhere.

    ``called`` names the address in errors, which show no more of it than the host: its path may contain a secret.
    ``carries_secret`` is true if a request does. A request has ``timeout`` seconds to connect, and its answer is read
    until ``timeout`` seconds after its start.
    """

    def __init__(self, url: str, timeout: float, *, called: str, carries_secret: bool) -> None:
        self._secure, self._host, self._port, self._path = _parts(url, called)
        if carries_secret and not self._secure and not _is_this_machine(self._host):
            raise InvalidArgument(
                f"{called} is not encrypted, so credentials would cross the network as plain text",
                hint="write https://; http:// with credentials is only for localhost",
            )
        self._timeout = timeout
        self._context = ssl.create_default_context() if self._secure else None
        self._threads: ThreadPoolExecutor | None = None

    async def send(self, method: str, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        """Make one request and wait for its answer."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, "dibs-http")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._send, method, dict(headers), body)

    def close(self) -> None:
        """End the threads. A later request starts new ones."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    def _send(self, method: str, headers: dict[str, str], body: bytes) -> HttpAnswer:
        end = time.monotonic() + self._timeout
        with closing(self._connection()) as connection:
            connection.response_class = partial(_Response, end=end)  # type: ignore[assignment]
            try:
                connection.connect()
            except (OSError, http.client.HTTPException) as error:
                raise NotSent(f"{self._host} cannot be reached: {type(error).__name__}: {error}") from None
            try:
                self._ask(connection, method, headers, body)
                got = connection.getresponse()
                text = got.read(LARGEST).decode("utf-8", "replace")
            except (OSError, http.client.HTTPException) as error:
                raise Unanswered(f"{self._host} did not answer: {type(error).__name__}: {error}") from None
            return HttpAnswer(got.status, {k.lower(): v for k, v in got.getheaders()}, text)

    def _ask(self, connection: http.client.HTTPConnection, method: str, headers: dict[str, str], body: bytes) -> None:
        try:
            connection.request(method, self._path, body, headers)
        except ValueError:  # Raised before anything was sent. Its text contains the header, perhaps a secret.
            raise NotSent("the method or a header is not one that HTTP can send") from None

    def _connection(self) -> http.client.HTTPConnection:
        if self._secure:
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._context)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)


class _Response(http.client.HTTPResponse):
    """An answer with a deadline for all of it: the timeout of a socket begins again with every byte."""

    def __init__(self, sock: socket.socket, *args: Any, end: float, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_Until(sock, end))


class _Until(io.RawIOBase):
    """A reader of a socket with a deadline, however slowly the peer sends."""

    def __init__(self, sock: socket.socket, end: float) -> None:
        self._sock, self._end = sock, end
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer took too long")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _parts(url: str, called: str) -> tuple[bool, str, int, str]:
    """Split an address: whether it is encrypted, its host, its port, and its path."""
    wrong = InvalidArgument(f"{called} is not an address of HTTP", hint="write https://host/path")
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port
        host_on_the_wire = host.encode("idna").decode()
    except ValueError:  # A UnicodeError is one, too.
        raise wrong from None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if parts.scheme not in DEFAULT_PORTS or not _VISIBLE.fullmatch(host_on_the_wire) or not _VISIBLE.fullmatch(path):
        raise wrong
    if "@" in parts.netloc:
        raise InvalidArgument(f"{called} has a login in it", hint="send it as the header Authorization")
    if port is None:  # Without one, http.client would read the end of an IPv6 address as the port.
        port = DEFAULT_PORTS[parts.scheme]
    return parts.scheme == "https", host, port, path


def _is_this_machine(host: str) -> bool:
    """True if a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


CONFIGURATION = {401, 403, 404, 405, 407}
"""Answers about our settings and not about the message: once an administrator has corrected them, it can be sent."""
IN_BETWEEN = {502, 504}
"""Answers of a gateway, which does not know what the server behind it did."""


def judge(answer: HttpAnswer, said: str | None = None) -> None:
    """Return if the answer says yes; else raise what it means."""
    status = answer.status
    message = f"HTTP {status}: {said or answer.text or 'no more was said'}"
    if 200 <= status < 300:
        return
    after = retry_after(answer.headers.get("retry-after"))
    if status == 429 or (status == 503 and after is not None):
        raise Throttled(message, after)
    if status in IN_BETWEEN:
        raise Unanswered(message)
    if status >= 500 or status < 400 or status in CONFIGURATION or status in {408, 409, 425}:
        raise NotSent(message)
    raise Refusal(message)


def retry_after(text: str | None) -> float | None:
    """Return the seconds of a Retry-After, given as a number or as a date."""
    if not text:
        return None
    try:
        wait = float(text) if text.strip().isdigit() else parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, OverflowError):
        return None
    return min(max(wait, 1.0), LONGEST_WAIT)
