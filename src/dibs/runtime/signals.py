"""Signals that ask this process to stop."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from dibs.runtime.guard import Guard

STOPS = (signal.SIGTERM, signal.SIGINT)
CLOSING = 10.0
"""Seconds after its grace time until the guard ends a process that has not closed."""


@contextmanager
def obeying(
    stop: Callable[[], None],
    hurry: Callable[[], None] = lambda: None,
    *,
    guard: Guard | None = None,
    grace: float = 0.0,
    at_once: signal.Signals | None = None,
) -> Iterator[None]:
    """Call ``stop`` on the first SIGTERM or Ctrl-C and ``hurry`` on each later one. Use it in the main thread.

    With ``at_once`` only that signal calls ``hurry``; a second SIGTERM or Ctrl-C then does nothing. The guard ends a
    process that has not ended some seconds after the grace time, or after ``hurry``.
    """
    loop = asyncio.get_running_loop()
    is_stopping = False

    def obey(number: int) -> None:
        nonlocal is_stopping
        hurries = number == at_once or (is_stopping and at_once is None)
        if guard is not None:
            guard.arm(CLOSING + (0.0 if hurries else grace))
        if not is_stopping:
            loop.call_soon_threadsafe(stop)
        if hurries:
            loop.call_soon_threadsafe(hurry)
        is_stopping = True

    with _signals_in_thread(STOPS if at_once is None else (*STOPS, at_once), obey):
        yield


@contextmanager
def _signals_in_thread(numbers: Collection[int], obey: Callable[[int], None]) -> Iterator[None]:
    """Call ``obey`` with each of these signals in a thread, even while the main thread is blocked.

    Python writes the number of each signal to a socket as soon as it arrives; the thread reads them.
    """
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    thread = threading.Thread(target=_read_signals, args=(reading, numbers, obey), name="dibs-signals", daemon=True)
    before = {number: signal.signal(number, _nothing) for number in numbers}
    fd = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(fd)
        for number, handler in before.items():
            signal.signal(number, handler)
        writing.close()
        thread.join()
        reading.close()


def _read_signals(reading: socket.socket, numbers: Collection[int], obey: Callable[[int], None]) -> None:
    while received := reading.recv(64):
        for number in received:
            if number in numbers:
                obey(number)


def _nothing(number: int, frame: object) -> None:
    """Python calls this in the main thread when it can. By then the other thread has obeyed the signal."""
