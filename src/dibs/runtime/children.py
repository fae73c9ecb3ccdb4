"""Several processes of one command, kept alive: one that dies is replaced. Knows no jobs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

from dibs.runtime.loop import Retrying

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

HEALTHY = 10.0
"""A process that lived this many seconds had started well: it is replaced without a pause."""

KILL = 15.0
"""How many seconds after its grace time a process is killed: later than it ends itself, if it still can."""

HURRY = signal.SIGUSR1
"""The signal by which a parent tells a child to end now."""

PARENT = "DIBS_PARENT"
"""The environment variable that tells a child who its parent is."""

NUMBER = "DIBS_CHILD"
"""The environment variable that tells a child which one it is, from 1."""


class Children:
    """Runs ``count`` processes until told to stop.

    ``command`` makes the n-th one's command line. A process that ends with 0 without being asked is replaced too,
    unless ``until_done``: then it has done its work. After one that ended with the status ``until_restart`` another is
    started only by a restart: it would end the same way. One that ended with the status ``for_good`` is never replaced:
    somebody else asked it to stop. One that is asked to end has ``grace`` seconds, and some more before it is killed.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        count: int,
        *,
        until_done: bool = False,
        grace: float = 30.0,
        until_restart: int | None = None,
        for_good: int | None = None,
        started: Callable[[int], None] = lambda _: None,
        died: Callable[[int, int], None] = lambda *_: None,
        left: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._command = command
        self._count = count
        self._until_done = until_done
        self._grace = grace
        self._until_restart = until_restart
        self._for_good = for_good
        self._woken = asyncio.Event()
        self._started = started
        self._died = died
        self._left = left
        self._children: dict[int, asyncio.subprocess.Process] = {}
        self._stop = asyncio.Event()
        self._asked: set[int] = set()

    @property
    def alive(self) -> int:
        """How many run now."""
        return sum(child.returncode is None for child in self._children.values())

    @property
    def missing(self) -> int:
        """How many should run and do not; one that left for good is not missed."""
        return self._count - self.alive

    def stop(self) -> None:
        """Ask all of them to end; they are not replaced any more."""
        self._stop.set()
        self._wake()
        self._signal(signal.SIGTERM)
        self._kill_later(self._grace + KILL)

    def hurry(self) -> None:
        """Tell all of them to end now."""
        self._signal(HURRY)
        self._kill_later(KILL)

    def restart(self) -> None:
        """Ask all of them to end, and start new ones in their place."""
        self._asked = {child.pid for child in self._children.values()}
        self._wake()
        self._signal(signal.SIGTERM)
        self._kill_later(self._grace + KILL)

    async def run(self) -> int:
        """Run until stopped or done; the worst exit status of those that ended last."""
        return max(await asyncio.gather(*(self._keep(n) for n in range(self._count))))

    async def _keep(self, n: int) -> int:
        retrying, failures = Retrying(0.2, 10.0), 0
        while True:
            began, woken = time.monotonic(), self._woken
            status = await self._live(n)
            if status == self._for_good:
                self._count -= 1
                self._left(self._children[n].pid)
                return 0
            if self._stop.is_set() or (self._until_done and status == 0):
                return 0 if status == -signal.SIGTERM else abs(status)  # It had not yet begun to listen.
            if self._children[n].pid not in self._asked:
                self._died(self._children[n].pid, status)
            failures = 0 if time.monotonic() - began > HEALTHY or status == 0 else failures + 1
            if failures:
                pause = None if status == self._until_restart else retrying.delay(failures)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), pause)
                if self._stop.is_set():
                    return abs(status)

    def _wake(self) -> None:
        """End the pauses; a pause that begins with a process from before this one is not made at all."""
        self._woken.set()
        self._woken = asyncio.Event()

    async def _live(self, n: int) -> int:
        # In its own session, so that a Ctrl-C in the terminal reaches it through us alone.
        child = await asyncio.create_subprocess_exec(
            *self._command(n), start_new_session=True, env={**os.environ, PARENT: str(os.getpid()), NUMBER: str(n + 1)}
        )
        self._children[n] = child
        self._started(child.pid)
        if self._stop.is_set():
            child.terminate()
        return await child.wait()

    def _kill_later(self, within: float) -> None:
        """Kill those that live now, if they still do then."""
        children = list(self._children.values())
        asyncio.get_running_loop().call_later(within, _send, children, signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        _send(self._children.values(), number)


def _send(children: Iterable[asyncio.subprocess.Process], number: signal.Signals) -> None:
    for child in children:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(number)


def file_of_child(path: Path) -> Path:
    """A child's own file in place of one that all of them were told to write: with its number behind the name."""
    return path.with_name(f"{path.name}.{os.environ[NUMBER]}") if is_child() else path


def is_child() -> bool:
    """Whether this process was started by :class:`Children`."""
    return os.environ.get(PARENT) == str(os.getppid())


def when_orphaned(stop: Callable[[], None]) -> None:
    """Wait until the parent that started this process is gone, and call this."""
    while is_child():
        time.sleep(1.0)
    stop()
