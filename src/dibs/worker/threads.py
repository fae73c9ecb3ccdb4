"""Threads for plain functions. They are daemons, so a handler that never returns does not keep the worker alive."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    TimeLimit = AbstractAsyncContextManager[None]
    MakeLimit = Callable[[], TimeLimit]
    Work = tuple[Callable[[], Any], asyncio.Future[Any], asyncio.AbstractEventLoop]


class Threads:
    """Runs functions, up to ``size`` at once. A cancelled caller frees its place at once; its thread runs on."""

    def __init__(self, size: int) -> None:
        self._places = asyncio.Semaphore(size)
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._idle = 0  # Threads that neither run a function nor are about to.
        self._started = 0
        self._lock = threading.Lock()

    async def run(self, function: Callable[[], Any], limit: MakeLimit = contextlib.nullcontext) -> Any:
        """Call the function in a thread, in a copy of this context. ``limit`` begins when a place is free."""
        loop = asyncio.get_running_loop()
        async with self._places, limit():
            future: asyncio.Future[Any] = loop.create_future()
            variables = contextvars.copy_context()
            self._submit((lambda: variables.run(function), future, loop))
            return await future

    def close(self) -> None:
        """End the idle threads now, and the others after their functions."""
        with self._lock:
            for _ in range(self._started):
                self._work.put(None)

    def _submit(self, work: Work) -> None:
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                self._started += 1
                threading.Thread(target=self._serve, name=f"dibs-handler-{self._started}", daemon=True).start()
            self._work.put(work)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            function, future, loop = work
            try:
                result, error = function(), None
            except BaseException as raised:
                result, error = None, raised
            with self._lock:
                self._idle += 1
            try:
                loop.call_soon_threadsafe(_set_result, future, result, error)
            except RuntimeError:
                return  # The loop is closed, so nobody waits for the result.
            del work, function, future, result, error  # Keep nothing alive while idle.


def _set_result(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, StopIteration):
        future.set_exception(RuntimeError(f"a handler raised {error!r}"))  # A future cannot carry it.
    else:
        future.set_exception(error)
