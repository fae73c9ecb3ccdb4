"""A proxy in front of a server, that can lose an answer, or go silent: nothing passes, and nothing is closed."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class Proxy:
    """Listens on loopback and passes everything on to a server's Unix socket."""

    def __init__(self, dsn: str) -> None:
        options = {k: v[0] for k, v in parse_qs(urlsplit(dsn).query).items()}
        self._target = str(Path(options["host"]) / f".s.PGSQL.{options.get('port', '5432')}")
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.dsn = f"postgresql://{options['user']}@127.0.0.1:{port}{urlsplit(dsn).path}?sslmode=disable"
        self._lose_after = b""
        self.losses = 0
        self.lost = threading.Event()
        self._threads: list[threading.Thread] = []
        self._hushed: list[threading.Event] = []
        self._sockets: list[socket.socket] = []
        self._is_silent = False
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def lose_the_answer_to(self, words: bytes, times: int = 1) -> None:
        """Pass the next message with these words on, and then cut the connection before its answer."""
        self.lost.clear()
        self._lose_after = words
        self.losses = times

    def go_silent(self, *, for_new: bool = False) -> None:
        """Pass nothing more on over the connections there are; with ``for_new`` over new ones neither."""
        self._is_silent = for_new
        for hushed in self._hushed:
            hushed.set()

    def speak(self) -> None:
        """Let new connections pass; those that are silent stay so, as behind a firewall that forgot them."""
        self._is_silent = False

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            self._sockets += (client, server)
            doomed, hushed = threading.Event(), threading.Event()
            self._hushed.append(hushed)
            if self._is_silent:
                hushed.set()
            for pair in ((client, server, True), (server, client, False)):
                self._start(self._pass_on, *pair, doomed, hushed)

    def _start(self, run: Callable[..., None], *args: object) -> None:
        self._threads.append(threading.Thread(target=run, args=args, daemon=True))
        self._threads[-1].start()

    def _pass_on(
        self,
        source: socket.socket,
        target: socket.socket,
        asking: bool,
        doomed: threading.Event,
        hushed: threading.Event,
    ) -> None:
        while True:
            try:
                data = source.recv(65536)
                if not asking and doomed.is_set() and data:
                    self.lost.set()
                    break
                if asking and self.losses and self._lose_after in data:
                    self.losses -= 1
                    doomed.set()
                if not data:
                    break
                if not hushed.is_set():
                    target.sendall(data)
            except OSError:
                break
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()
