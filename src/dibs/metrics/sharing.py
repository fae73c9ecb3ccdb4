"""Metrics of several processes on one page: each child shares its own in a folder, and the parent gathers them."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHILD_PATIENCE = 1.0
"""Seconds a child has to answer; one that is too busy is left out of this page."""


class Shared:
    """A text of this process for the parent to read, until closed: by a socket in the folder, named by process id."""

    def __init__(self, folder: Path, text: Callable[[], str]) -> None:
        self._path = folder / f"{os.getpid()}.sock"
        self._text = text
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Start answering."""
        self._server = await asyncio.start_unix_server(self._answer, self._path)

    async def close(self) -> None:
        """Stop answering."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            _remove(self._path)

    async def _answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            writer.write(self._text().encode())
            await writer.drain()
        writer.close()


async def gather(folder: Path) -> dict[str, str]:
    """Return the metrics that the processes currently share, by process id."""
    paths = _sockets(folder)
    texts = await asyncio.gather(*(_read(path) for path in paths))
    return {path.stem: text for path, text in zip(paths, texts, strict=True) if text}


async def _read(path: Path) -> str:
    try:
        async with asyncio.timeout(CHILD_PATIENCE):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                return (await reader.read()).decode()
            finally:
                writer.close()
    except ConnectionRefusedError:
        if not _is_alive(path):  # It was killed. Otherwise it is about to listen.
            _remove(path)
        return ""
    except OSError:  # It has just gone, or is too busy (TimeoutError), or may not be asked: the others have answered.
        return ""


def _is_alive(path: Path) -> bool:
    try:
        os.kill(int(path.stem), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        pass
    return True


def _sockets(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.sock"))


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
