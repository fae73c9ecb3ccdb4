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
    from collections.abc import Callable, Sequence

HEALTHY = 10.0
"""A process that lived this many seconds had started well: it is replaced without a pause."""

PARENT = "DIBS_PARENT"
"""The environment variable that tells a child who its parent is."""


class Children:
    """Runs ``count`` processes until told to stop.

    ``command`` makes the n-th one's command line. A process that ends with 0 without being asked is replaced too,
    unless ``until_done``: then it has done its work.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        count: int,
        *,
        until_done: bool = False,
        started: Callable[[int], None] = lambda _: None,
        died: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        self._command = command
        self._count = count
        self._until_done = until_done
        self._started = started
        self._died = died
        self._children: dict[int, asyncio.subprocess.Process] = {}
        self._stop = asyncio.Event()
        self._asked: set[int] = set()

    @property
    def alive(self) -> int:
        """How many run now."""
        return sum(child.returncode is None for child in self._children.values())

    def stop(self) -> None:
        """Ask all of them to end; they are not replaced any more."""
        self._stop.set()
        self._signal(signal.SIGTERM)

    def hurry(self) -> None:
        """Tell all of them to end now."""
        self._signal(signal.SIGUSR1)

    def restart(self) -> None:
        """Ask all of them to end, and start new ones in their place."""
        self._asked = {child.pid for child in self._children.values()}
        self._signal(signal.SIGTERM)

    async def run(self) -> int:
        """Run until stopped or done; the worst exit status of those that ended last."""
        return max(await asyncio.gather(*(self._keep(n) for n in range(self._count))))

    async def _keep(self, n: int) -> int:
        retrying, failures = Retrying(0.2, 10.0), 0
        while True:
            began = time.monotonic()
            status = await self._live(n)
            if self._stop.is_set() or (self._until_done and status == 0):
                return abs(status)
            if self._children[n].pid not in self._asked:
                self._died(self._children[n].pid, status)
            failures = 0 if time.monotonic() - began > HEALTHY or status == 0 else failures + 1
            if failures:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), retrying.delay(failures))
                    return abs(status)

    async def _live(self, n: int) -> int:
        # In its own session, so that a Ctrl-C in the terminal reaches it through us alone.
        child = await asyncio.create_subprocess_exec(
            *self._command(n), start_new_session=True, env={**os.environ, PARENT: str(os.getpid())}
        )
        self._children[n] = child
        self._started(child.pid)
        if self._stop.is_set():
            child.terminate()
        return await child.wait()

    def _signal(self, number: signal.Signals) -> None:
        for child in self._children.values():
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    child.send_signal(number)


def is_child() -> bool:
    """Whether this process was started by :class:`Children`."""
    return os.environ.get(PARENT) == str(os.getppid())


async def orphaned() -> None:
    """Return when the parent that started this process is gone."""
    while is_child():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(1.0)
