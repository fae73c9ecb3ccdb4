"""The code that runs in a handler's process: reads a job, runs it, and writes how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import threading
import time
from multiprocessing import connection, parent_process
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import msgspec

from dibs.client.app import App
from dibs.client.context import Context, StopReason, enter, tell_stop
from dibs.client.transaction import Databases
from dibs.db import calls
from dibs.errors import DibsError, InvalidArgument
from dibs.job import Claimed  # noqa: TC001 - msgspec reads it
from dibs.metrics.log_setup import LogSetup, inherit
from dibs.retry import Retry
from dibs.worker.handler import next_repeat, wrapped
from dibs.worker.run_end import RunEnd, failed, succeeded

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from dibs.client.task import Task


class Request(msgspec.Struct, tag=True):
    """The worker asks to run a job: the module of its task, how much memory it may use, and how to log.

    ``stop`` is set if the run is already to stop.
    """

    module: str
    job: Claimed
    memory: int | None = None
    log: LogSetup | None = None
    stop: StopReason | None = None


class Stop(msgspec.Struct, tag=True):
    """The worker says that a run should stop."""

    run: bytes
    why: StopReason


def serve(pipe: Connection, dsn: str) -> None:
    """Run jobs until the pipe is closed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # The worker closes the pipe or kills us.
    threading.Thread(target=_end_with_parent, name="dibs-parent", daemon=True).start()
    inbox = Inbox(pipe)
    with asyncio.Runner() as runner:
        databases = Databases(dsn, 1)
        with contextlib.suppress(OSError):
            while (request := inbox.requests.get()) is not None:
                context = Context(request.job, databases, lambda job, progress: _report(databases, job, progress))
                inbox.begin(context, request.stop)
                pipe.send_bytes(msgspec.json.encode(_run(request, context, runner)))
        runner.run(databases.close())


class Inbox:
    """Reads the worker's messages in a thread: the next request, or a stop of the current run."""

    def __init__(self, pipe: Connection) -> None:
        self.requests: SimpleQueue[Request | None] = SimpleQueue()
        self._pipe = pipe
        self._context: Context | None = None
        self._stop: Stop | None = None
        threading.Thread(target=self._read, name="dibs-inbox", daemon=True).start()

    def begin(self, context: Context, why: StopReason | None) -> None:
        """Begin a run, so that a stop reaches it."""
        if why is not None:
            tell_stop(context, why)
        self._context = context
        self._pass_on_stop()

    def _read(self) -> None:
        try:
            while True:
                message = msgspec.json.decode(self._pipe.recv_bytes(), type=Request | Stop)
                if isinstance(message, Request):
                    self.requests.put(message)
                else:
                    self._stop = message
                    self._pass_on_stop()
        except (EOFError, OSError):
            return
        finally:
            self.requests.put(None)

    def _pass_on_stop(self) -> None:
        """Pass a stop on if it is meant for the current run. That run may have ended, or not begun yet."""
        context, stop = self._context, self._stop
        if context is not None and stop is not None and context.job._run_key == stop.run:
            tell_stop(context, stop.why)


def _run(request: Request, context: Context, runner: asyncio.Runner) -> RunEnd:
    began = time.monotonic()
    retry = Retry()
    try:
        task = find(request.module, request.job.kind)
        retry = task.settings.retry
        if request.log is not None:  # After the import, as in the worker: the app may set up logging itself.
            inherit(request.log)
        arguments = task.arguments.read(request.job._payload)
    except BaseException as error:
        return failed(context, retry, error, began, final=isinstance(error, InvalidArgument))
    try:
        context.follow_ups.extend(next_repeat(task, request.job))
        enter(context)
        with _limited_memory(request.memory):
            outcome = wrapped(task, task.app.middleware)(context, arguments)
            result = runner.run(outcome) if task.is_async else outcome
            return succeeded(context, retry, result, began)
    except BaseException as error:
        return failed(context, retry, error, began)


def _report(databases: Databases, job: Claimed, progress: dict[str, Any]) -> None:
    with contextlib.suppress(DibsError):  # Progress is not worth failing for.
        databases.sync.run(calls.jobs.progress_many([job], [progress]))


def find(module: str, kind: str) -> Task[Any, Any]:
    """Find the task of that kind, of any app that is a variable of the module."""
    for value in vars(importlib.import_module(module)).values():
        if isinstance(value, App) and kind in value.tasks:
            return value.tasks[kind]
    raise InvalidArgument(
        f"a separate process cannot find the task {kind} in {module}",
        hint="declare it at the top of a module, with an app that the module names",
    )


@contextlib.contextmanager
def _limited_memory(limit: int | None) -> Any:
    """Let this process take no more than ``limit`` bytes beyond what it has."""
    if limit is None:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    allowed = _size() + limit
    resource.setrlimit(resource.RLIMIT_AS, (allowed if hard == resource.RLIM_INFINITY else min(allowed, hard), hard))
    try:
        yield
    except MemoryError as error:
        raise MemoryError(f"it needed more than {limit} bytes") from error
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _size() -> int:
    """The bytes of address space in use; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
