"""Processes for handlers that need one: for CPU work, hard timeouts and memory caps."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
from typing import TYPE_CHECKING

import msgspec

from dibs.errors import DibsError
from dibs.metrics.log_setup import begun
from dibs.worker.child import Request, Stop, find, serve
from dibs.worker.run_end import RunEnd
from dibs.worker.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.client.context import Context, StopReason, Tell
    from dibs.client.task import Task
    from dibs.worker.threads import Limited


class ProcessDied(DibsError):
    """The process that ran a job ended before the job did."""


class Processes:
    """Up to ``size`` processes, started when they are needed, each running one job at a time."""

    def __init__(self, dsn: str, size: int) -> None:
        self._dsn = dsn
        self._threads = Threads(size)
        self._idle: list[Child] = []
        self._all: set[Child] = set()

    async def run(self, task: Task[..., object], here: Context, limit: Callable[[Tell], Limited]) -> RunEnd:
        """Run one attempt within the limit; a process that is not done when we are cancelled is killed."""
        child: Child | None = None
        given_up = False
        asked = Request(task.function.__module__, here.job, task.settings.memory, begun[0] if begun else None)

        def ask() -> RunEnd:
            nonlocal child
            child = self._child()
            if given_up:  # While it was starting: nobody else knows it yet.
                child.kill()
            return child.ask(msgspec.structs.replace(asked, stop=here.stop_reason))

        def tell(why: StopReason) -> None:
            if child is not None:  # Otherwise the request will say so.
                child.tell(Stop(here.job._run_key, why))

        try:
            end: RunEnd = await self._threads.run(ask, lambda: limit(tell))
        except BaseException:
            given_up = True
            if child is not None:
                child.kill()
                self._all.discard(child)
            raise
        if child is not None:
            self._idle.append(child)
        return end

    def _child(self) -> Child:
        """One that is idle, or a new one; called in threads."""
        try:
            return self._idle.pop()
        except IndexError:
            made = Child(self._dsn)
            self._all.add(made)
            return made

    def close(self) -> None:
        """End them all, whatever they do."""
        for child in list(self._all):
            child.kill()
        self._threads.close()


class Child:
    """One process and the pipe to it. It is spawned, never forked: a fork would share our connections."""

    def __init__(self, dsn: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, dsn), name="dibs-handler", daemon=True)
        self._process.start()
        theirs.close()
        self._writing = threading.Lock()

    def ask(self, request: Request) -> RunEnd:
        """Run a job there; blocks."""
        try:
            self._write(request)
            return msgspec.json.decode(self._pipe.recv_bytes(), type=RunEnd)
        except (EOFError, OSError):
            self._process.join(5)
            self._pipe.close()
            raise ProcessDied(f"the process running it ended with {_ending(self._process.exitcode)}") from None

    def tell(self, stop: Stop) -> None:
        """Tell the run there that it should stop; from a thread, because a process that reads nothing would block."""
        threading.Thread(target=self._tell, args=(stop,), name="dibs-stop", daemon=True).start()

    def _tell(self, stop: Stop) -> None:
        with contextlib.suppress(OSError):  # It has ended.
            self._write(stop)

    def _write(self, message: Request | Stop) -> None:
        with self._writing:
            self._pipe.send_bytes(msgspec.json.encode(message))

    def kill(self) -> None:
        """End it at once, whatever it does."""
        self._process.kill()


def _ending(status: int | None) -> str:
    if status is None or status >= 0:
        return f"exit code {status}"
    return f"signal {signal.Signals(-status).name}"


def check_importable(task: Task[..., object]) -> None:
    """Refuse a task that a separate process could not find, before any job of it is claimed."""
    find(task.function.__module__, task.name)
