"""Serves a few pages over HTTP, for probes and scrapers: GET and HEAD, one answer for each connection.

A thread with a separate event loop serves them, so that they answer while the main loop is blocked.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

from dibs.runtime.ending import end

R = TypeVar("R")

PATIENCE = 5.0
"""Seconds a client has to send its request and to receive the answer."""


@dataclass(frozen=True, slots=True)
class Page:
    """The answer to a request."""

    body: str
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"


Route = Callable[[], Page | Coroutine[Any, Any, Page]]
"""Makes a page: in the thread that serves the pages, or as a coroutine that runs on the loop that opened them."""


class Pages:
    """Serves pages by their path until closed."""

    def __init__(self, routes: Mapping[str, Route]) -> None:
        self._routes = routes
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="dibs-pages", daemon=True)
        self._server: asyncio.Server | None = None
        self.port = 0

    async def open(self, port: int, host: str = "127.0.0.1") -> None:
        """Listen. Port 0 takes a free one, which :attr:`port` then holds."""
        self._main_loop = asyncio.get_running_loop()
        self._thread.start()
        self._server = await self._in_thread(asyncio.start_server(self._serve, host, port))
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            await self._in_thread(self._close(self._server))
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE)
        self._loop.close()

    async def _in_thread(self, awaited: Coroutine[Any, Any, R]) -> R:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(awaited, self._loop))

    async def _close(self, server: asyncio.Server) -> None:
        server.close()
        me = asyncio.current_task()
        await end([task for task in asyncio.all_tasks() if task is not me], within=PATIENCE)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                method, path, _ = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)
                page = await self._page(method, path.decode("latin-1"))
                writer.write(_answer(page, with_body=method != b"HEAD"))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError):
            return
        finally:
            writer.close()

    async def _page(self, method: bytes, path: str) -> Page:
        route = self._routes.get(path.partition("?")[0])
        if route is None:
            return Page(f"no such page; there are {', '.join(sorted(self._routes))}\n", HTTPStatus.NOT_FOUND)
        if method not in {b"GET", b"HEAD"}:
            return Page("only GET and HEAD\n", HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            page = route()
            if isinstance(page, Page):
                return page
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(page, self._main_loop))
        except Exception as error:
            return Page(f"{type(error).__name__}\n", HTTPStatus.INTERNAL_SERVER_ERROR)


def _answer(page: Page, *, with_body: bool) -> bytes:
    body = page.body.encode()
    head = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
        f"Content-Type: {page.content_type}\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (body if with_body else b"")
