"""The inside of a handler's own process: reads a job, runs it, and writes how it ended."""

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
from dibs.worker.handler import again, wrapped
from dibs.worker.run_end import RunEnd, failed, succeeded

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from dibs.client.task import Task


class Request(msgspec.Struct, tag=True):
    """What the worker asks for: this job, of that task of that module, with this much memory and this log.

    It may know already that it should ``stop``.
    """

    module: str
    job: Claimed
    memory: int | None = None
    log: LogSetup | None = None
    stop: StopReason | None = None


class Stop(msgspec.Struct, tag=True):
    """The worker says that this run should stop."""

    run: bytes
    why: StopReason


def serve(pipe: Connection, dsn: str) -> None:
    """Run jobs until the pipe is closed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # The worker decides, and closes the pipe or kills us.
    threading.Thread(target=_end_with_parent, name="dibs-parent", daemon=True).start()
    inbox = Inbox(pipe)
    with asyncio.Runner() as runner:
        databases = Databases(dsn, 1)
        with contextlib.suppress(OSError):
            while (request := inbox.requests.get()) is not None:
                here = Context(request.job, databases, lambda job, told: _report(databases, job, told))
                inbox.begin(here, request.stop)
                pipe.send_bytes(msgspec.json.encode(_run(request, here, runner)))
        runner.run(databases.close())


class Inbox:
    """Reads what the worker says, in a thread: what to run next, and that what runs should stop."""

    def __init__(self, pipe: Connection) -> None:
        self.requests: SimpleQueue[Request | None] = SimpleQueue()
        self._pipe = pipe
        self._here: Context | None = None
        self._stop: Stop | None = None
        threading.Thread(target=self._read, name="dibs-inbox", daemon=True).start()

    def begin(self, here: Context, why: StopReason | None) -> None:
        """From now on this is what runs."""
        if why is not None:
            tell_stop(here, why)
        self._here = here
        self._tell()

    def _read(self) -> None:
        try:
            while True:
                said = msgspec.json.decode(self._pipe.recv_bytes(), type=Request | Stop)
                if isinstance(said, Request):
                    self.requests.put(said)
                else:
                    self._stop = said
                    self._tell()
        except (EOFError, OSError):
            return
        finally:
            self.requests.put(None)

    def _tell(self) -> None:
        """Tell the run that is meant, which may not have begun, or has ended already."""
        here, stop = self._here, self._stop
        if here is not None and stop is not None and here.job._run_key == stop.run:
            tell_stop(here, stop.why)


def _run(request: Request, here: Context, runner: asyncio.Runner) -> RunEnd:
    began = time.monotonic()
    retry = Retry()
    try:
        task = find(request.module, request.job.kind)
        retry = task.settings.retry
        if request.log is not None:  # After the import, as in the worker: the app may have set up logging itself.
            inherit(request.log)
        arguments = task.arguments.read(request.job._payload)
    except BaseException as error:
        return failed(here, retry, error, began, final=isinstance(error, InvalidArgument))
    here.follow_ups.extend(again(task, request.job))
    enter(here)
    try:
        with _memory(request.memory):
            outcome = wrapped(task, task.app.middleware)(here, arguments)
            result = runner.run(outcome) if task.is_async else outcome
            return succeeded(here, retry, result, began)
    except BaseException as error:
        return failed(here, retry, error, began)


def _report(databases: Databases, job: Claimed, progress: dict[str, Any]) -> None:
    with contextlib.suppress(DibsError):  # What cannot be said is not worth failing for.
        databases.sync.run(calls.jobs.progress_many([job], [progress]))


def find(module: str, kind: str) -> Task[Any, Any]:
    """The task of that kind: of an app that the module knows by some name."""
    for value in vars(importlib.import_module(module)).values():
        if isinstance(value, App) and kind in value.tasks:
            return value.tasks[kind]
    raise InvalidArgument(
        f"a separate process cannot find the task {kind} in {module}",
        hint="declare it at the top of a module, with an app that the module names",
    )


@contextlib.contextmanager
def _memory(limit: int | None) -> Any:
    """Let this process take no more than ``limit`` bytes beyond what it has."""
    if limit is None:
        yield
        return
    import resource

    was, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_size() + limit, most))
    try:
        yield
    except MemoryError as error:
        raise MemoryError(f"it needed more than {limit} bytes") from error
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (was, most))


def _size() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
