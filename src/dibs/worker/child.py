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
from typing import TYPE_CHECKING, Any

import msgspec

from dibs.client.app import App
from dibs.client.context import Context, enter
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


class Request(msgspec.Struct):
    """What the worker asks for: this job, of that task of that module, with this much memory and this log."""

    module: str
    job: Claimed
    memory: int | None = None
    log: LogSetup | None = None


def serve(pipe: Connection, dsn: str) -> None:
    """Run jobs until the pipe is closed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # The worker decides, and closes the pipe or kills us.
    threading.Thread(target=_end_with_parent, name="dibs-parent", daemon=True).start()
    with asyncio.Runner() as runner:
        databases = Databases(dsn, 1)
        with contextlib.suppress(EOFError, OSError):
            while True:
                request = msgspec.json.decode(pipe.recv_bytes(), type=Request)
                pipe.send_bytes(msgspec.json.encode(_run(request, databases, runner)))
        runner.run(databases.close())


def _run(request: Request, databases: Databases, runner: asyncio.Runner) -> RunEnd:
    began = time.monotonic()
    here = Context(request.job, databases, lambda job, told: _report(databases, job, told))
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
        databases.sync.run(calls.jobs.report_many([job], [progress]))


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
