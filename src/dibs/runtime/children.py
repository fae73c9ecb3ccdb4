"""Runs several processes of one command, and replaces those that die. Knows nothing of jobs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

from dibs.runtime.loop import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

HEALTHY = 10.0
"""A process that lived this many seconds had started well. It is replaced without a pause."""

KILL_AFTER = 15.0
"""Seconds after its grace time until a process is killed. Its guard ends it before that, unless it is frozen."""

HURRY = signal.SIGUSR1
"""The signal by which a parent tells a child to end now."""

PARENT = "DIBS_PARENT"
"""The environment variable that tells a child the process id of its parent."""

NUMBER = "DIBS_CHILD"
"""The environment variable that tells a child its number, from 1."""


class Children:
    """Runs ``count`` processes until told to stop. ``command`` makes the command line of each.

    A process that ends is replaced. There are three exceptions, by its exit status:

    - 0, if ``replace_done`` is false and no restart has ended it: it has done its work;
    - ``status_to_wait``: it is replaced only by a restart, since the next process would end the same way;
    - ``status_to_leave``: it is never replaced, since an operator asked it to stop.

    A process that is asked to end has ``grace`` seconds, and some more before it is killed.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        count: int,
        *,
        replace_done: bool = True,
        grace: float = 30.0,
        status_to_wait: int | None = None,
        status_to_leave: int | None = None,
        started: Callable[[int], None] = lambda _: None,
        died: Callable[[int, int], None] = lambda *_: None,
        left: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._command = command
        self._count = self._wanted = count
        self._replace_done = replace_done
        self._grace = grace
        self._status_to_wait = status_to_wait
        self._status_to_leave = status_to_leave
        self._woken = asyncio.Event()
        self._started = started
        self._died = died
        self._left = left
        self._children: dict[int, asyncio.subprocess.Process] = {}
        self._stop = asyncio.Event()
        self._restarted: set[int] = set()

    @property
    def alive(self) -> int:
        """The number of processes that run now."""
        return sum(child.returncode is None for child in self._children.values())

    @property
    def missing(self) -> int:
        """The number of processes that should run and do not. One that is never replaced is not missing."""
        return self._wanted - self.alive

    def stop(self) -> None:
        """Ask all processes to end, and replace none."""
        self._stop.set()
        self._wake()
        self._signal(signal.SIGTERM)
        self._kill_later(self._grace + KILL_AFTER)

    def hurry(self) -> None:
        """Tell all processes to end now."""
        self._signal(HURRY)
        self._kill_later(KILL_AFTER)

    def restart(self) -> None:
        """Ask all processes to end, and start new ones in their place, also where one waits for a restart."""
        self._restarted = {child.pid for child in self._children.values()}
        self._wake()
        self._signal(signal.SIGTERM)
        self._kill_later(self._grace + KILL_AFTER)

    async def run(self) -> int:
        """Run until stopped or done. Return the worst exit status of the last processes."""
        return max(await asyncio.gather(*(self._keep_alive(n) for n in range(self._count))))

    async def _keep_alive(self, n: int) -> int:
        """Run one process after another. Return the exit status of the last."""
        backoff, failures = Backoff(0.2, 10.0), 0
        while True:
            began = time.monotonic()
            woken = self._woken  # Before the start: a restart while the process runs sets it, and there is no pause.
            status = await self._run_once(n)
            pid = self._children[n].pid
            is_restarted = pid in self._restarted
            if status == self._status_to_leave:
                self._wanted -= 1
                self._left(pid)
                return 0
            if self._stop.is_set():
                return 0 if status == -signal.SIGTERM else abs(status)  # SIGTERM came before its handler.
            if status == 0 and not self._replace_done and not is_restarted:
                self._wanted -= 1
                return 0
            if not is_restarted:
                self._died(pid, status)
            failures = 0 if time.monotonic() - began > HEALTHY or status == 0 else failures + 1
            if failures:
                pause = None if status == self._status_to_wait else backoff.delay(failures)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), pause)
                if self._stop.is_set():
                    return abs(status)

    def _wake(self) -> None:
        """End all pauses between two processes. After a process that runs now there will be none, either."""
        self._woken.set()
        self._woken = asyncio.Event()

    async def _run_once(self, n: int) -> int:
        # In a separate session: a Ctrl-C in the terminal then reaches it only through us.
        child = await asyncio.create_subprocess_exec(
            *self._command(n), start_new_session=True, env={**os.environ, PARENT: str(os.getpid()), NUMBER: str(n + 1)}
        )
        self._children[n] = child
        self._started(child.pid)
        if self._stop.is_set():  # While the process was being made.
            _send([child], signal.SIGTERM)
            self._kill_later(self._grace + KILL_AFTER)
        return await child.wait()

    def _kill_later(self, seconds: float) -> None:
        """Kill the processes of now if they still run after so many seconds."""
        children = list(self._children.values())
        asyncio.get_running_loop().call_later(seconds, _send, children, signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        _send(self._children.values(), number)


def _send(children: Iterable[asyncio.subprocess.Process], number: signal.Signals) -> None:
    for child in children:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(number)


def file_of_child(path: Path) -> Path:
    """Add a child's number to a file name that all children were given, so that each writes its own file."""
    return path.with_name(f"{path.name}.{os.environ[NUMBER]}") if is_child() else path


def is_child() -> bool:
    """Return true if :class:`Children` started this process and its parent is still alive."""
    return os.environ.get(PARENT) == str(os.getppid())


def when_orphaned(stop: Callable[[], None]) -> None:
    """Wait until the parent that started this process is gone, and call ``stop``."""
    while is_child():
        time.sleep(1.0)
    stop()
