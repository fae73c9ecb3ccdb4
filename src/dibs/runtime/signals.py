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
"""How many seconds a process has to close after its grace time."""


@contextmanager
def obeying(
    stop: Callable[[], None],
    hurry: Callable[[], None] = lambda: None,
    *,
    guard: Guard | None = None,
    grace: float = 0.0,
    at_once: signal.Signals | None = None,
) -> Iterator[None]:
    """Call ``stop`` on the first SIGTERM or Ctrl-C and ``hurry`` on each later one; for the main thread's loop.

    With ``at_once`` only that signal means "now", and repeated others mean nothing more. The guard ends the process
    if it has not ended some seconds after the grace time, or after it was told to hurry.
    """
    loop = asyncio.get_running_loop()
    asked = False

    def obey(number: int) -> None:
        nonlocal asked
        now = number == at_once or (asked and at_once is None)
        if guard is not None:
            guard.arm(CLOSING + (0.0 if now else grace))
        if not asked:
            loop.call_soon_threadsafe(stop)
        if now:
            loop.call_soon_threadsafe(hurry)
        asked = True

    with _hearing(STOPS if at_once is None else (*STOPS, at_once), obey):
        yield


@contextmanager
def _hearing(numbers: Collection[int], obey: Callable[[int], None]) -> Iterator[None]:
    """Call ``obey`` with each of these signals, in a thread: they are heard even while the main thread is blocked."""
    heard, rings = socket.socketpair()
    rings.setblocking(False)
    ear = threading.Thread(target=_listen, args=(heard, numbers, obey), name="dibs-signals", daemon=True)
    before = {number: signal.signal(number, _nothing) for number in numbers}
    fd = signal.set_wakeup_fd(rings.fileno(), warn_on_full_buffer=False)
    ear.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(fd)
        for number, handler in before.items():
            signal.signal(number, handler)
        rings.close()
        ear.join()
        heard.close()


def _listen(heard: socket.socket, numbers: Collection[int], obey: Callable[[int], None]) -> None:
    while rung := heard.recv(64):
        for number in rung:
            if number in numbers:
                obey(number)


def _nothing(number: int, frame: object) -> None:
    """Python calls this in the main thread when it can; the thread has heard it by then."""
