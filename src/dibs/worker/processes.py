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

    from dibs.client.context import Context, SendStop, StopReason
    from dibs.client.task import Task
    from dibs.worker.threads import TimeLimit


class ProcessDied(DibsError):
    """A process ended before the job that it ran."""


class Processes:
    """Up to ``size`` processes, started when they are needed. Each runs one job at a time."""

    def __init__(self, dsn: str, size: int) -> None:
        self._dsn = dsn
        self._threads = Threads(size)
        self._idle: list[Child] = []
        self._all: set[Child] = set()

    async def run(self, task: Task[..., object], context: Context, limit: Callable[[SendStop], TimeLimit]) -> RunEnd:
        """Run one attempt within the time limit. If we are cancelled before it ends, its process is killed."""
        child: Child | None = None
        abandoned = False
        request = Request(task.function.__module__, context.job, task.settings.memory, begun[0] if begun else None)

        def run_in_child() -> RunEnd:
            nonlocal child
            child = self._take_child()
            if abandoned:  # While the process was starting; nobody else could kill it.
                child.kill()
                self._all.discard(child)
            return child.run(msgspec.structs.replace(request, stop=context.stop_reason))

        def send_stop(why: StopReason) -> None:
            if child is not None:  # Otherwise the request will carry the reason.
                child.send_stop(Stop(context.job._run_key, why))

        try:
            end: RunEnd = await self._threads.run(run_in_child, lambda: limit(send_stop))
        except BaseException:
            abandoned = True
            if child is not None:
                child.kill()
                self._all.discard(child)
            raise
        if child is not None:
            self._idle.append(child)
        return end

    def _take_child(self) -> Child:
        """Take an idle child or start a new one. Called in threads."""
        while True:
            try:
                child = self._idle.pop()
            except IndexError:
                child = Child(self._dsn)
                self._all.add(child)
                return child
            if child.is_alive:
                return child
            self._all.discard(child)  # It was killed while it was idle; no job is to blame.

    def close(self) -> None:
        """Kill all processes, whatever they run."""
        for child in list(self._all):
            child.kill()
        self._threads.close()


class Child:
    """One process and the pipe to it. It is spawned and not forked: a fork would share our connections."""

    def __init__(self, dsn: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, pipe_of_child = context.Pipe()
        self._process = context.Process(target=serve, args=(pipe_of_child, dsn), name="dibs-handler", daemon=True)
        self._process.start()
        pipe_of_child.close()
        self._writing = threading.Lock()

    @property
    def is_alive(self) -> bool:
        """True while the process runs."""
        return self._process.is_alive()

    def run(self, request: Request) -> RunEnd:
        """Run a job there. Blocks until it ends."""
        try:
            self._write(request)
            return msgspec.json.decode(self._pipe.recv_bytes(), type=RunEnd)
        except (EOFError, OSError):
            self._process.join(5)
            self._pipe.close()
            raise ProcessDied(f"the process running it ended with {_describe_exit(self._process.exitcode)}") from None

    def send_stop(self, stop: Stop) -> None:
        """Tell the run there that it should stop; in a thread, because writing blocks if the process does not read."""
        threading.Thread(target=self._send_stop, args=(stop,), name="dibs-stop", daemon=True).start()

    def _send_stop(self, stop: Stop) -> None:
        with contextlib.suppress(OSError):  # The process has ended.
            self._write(stop)

    def _write(self, message: Request | Stop) -> None:
        with self._writing:
            self._pipe.send_bytes(msgspec.json.encode(message))

    def kill(self) -> None:
        """Kill the process, whatever it runs."""
        self._process.kill()


def _describe_exit(status: int | None) -> str:
    if status is None or status >= 0:
        return f"exit code {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:  # Most real-time signals have no name.
        return f"signal {-status}"


def check_importable(task: Task[..., object]) -> None:
    """Refuse a task that a separate process could not find, before any job of it is claimed."""
    find(task.function.__module__, task.name)
