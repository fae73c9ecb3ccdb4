"""One HTTP request, by the standard library in a thread; and what an answer means."""

from __future__ import annotations

import asyncio
import http.client
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from dibs.channels.provider import NotSent, Refusal, Throttled
from dibs.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

THREADS = 20
LARGEST = 1_000_000
"""How much of an answer is read."""
LONGEST_WAIT = 86400.0
TOLD = 500
"""How much of an answer goes into an error."""


class Unanswered(Exception):
    """The request was sent, and it is unknown whether it was handled."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    text: str

    def json(self) -> Any:
        """The answer as JSON; nothing if it is none."""
        try:
            return msgspec.json.decode(self.text)
        except msgspec.DecodeError:
            return None


class Http:
    """Makes requests to one address; never follows a redirect, which could carry a secret elsewhere."""

    def __init__(self, url: str, timeout: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise InvalidArgument(f"{url!r} is not an address of HTTP", hint="write https://host/path")
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._timeout = timeout
        self._context = ssl.create_default_context() if self._secure else None
        self._threads = ThreadPoolExecutor(THREADS, "dibs-http")

    async def send(self, method: str, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        """Make one request and wait for its answer."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._send, method, dict(headers), body)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _send(self, method: str, headers: dict[str, str], body: bytes) -> HttpAnswer:
        connection = self._connection()
        try:
            try:
                connection.connect()
            except (OSError, http.client.HTTPException) as error:
                raise NotSent(f"{self._host} cannot be reached: {type(error).__name__}: {error}") from None
            try:
                connection.request(method, self._path, body, headers)
                got = connection.getresponse()
                text = got.read(LARGEST).decode("utf-8", "replace")
            except (OSError, http.client.HTTPException) as error:
                raise Unanswered(f"{self._host} did not answer: {type(error).__name__}: {error}") from None
            return HttpAnswer(got.status, {k.lower(): v for k, v in got.getheaders()}, text)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._secure:
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._context)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)


CONFIGURATION = {401, 403, 404, 405, 407}
"""Answers about our settings and not about the message: once an administrator has corrected them, it can be sent."""
IN_BETWEEN = {502, 504}
"""Answers of a gateway, which does not know what the server behind it did."""


def judge(answer: HttpAnswer, said: str | None = None) -> None:
    """Return if the answer says yes; else raise what it means."""
    status = answer.status
    told = f"HTTP {status}: {(said or answer.text or 'no more was said')[:TOLD]}"
    if 200 <= status < 300:
        return
    after = retry_after(answer.headers.get("retry-after"))
    if status == 429 or (status == 503 and after is not None):
        raise Throttled(told, after)
    if status in IN_BETWEEN:
        raise Unanswered(told)
    if status >= 500 or status < 400 or status in CONFIGURATION or status in {408, 409, 425}:
        raise NotSent(told)
    raise Refusal(told)


def retry_after(text: str | None) -> float | None:
    """The seconds a Retry-After asks for, given as a number or as a date."""
    if not text:
        return None
    try:
        wait = float(text) if text.strip().isdigit() else parsedate_to_datetime(text).timestamp() - time.time()
    except ValueError:
        return None
    return min(max(wait, 1.0), LONGEST_WAIT)
