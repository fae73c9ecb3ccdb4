"""One attempt, run in the caller's thread by the steps of a worker.

A worker runs handlers on its event loop, in threads and in processes. Here a plain function is called in the caller's
own thread, with the caller's connections and patches. A coroutine gets an event loop: its own from :func:`attempt`, the
caller's from :func:`aattempt`. A batch handler gets a batch of one.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Timer
from typing import TYPE_CHECKING, Any

from dibs.client.context import Context, enter, tell_stop
from dibs.client.transaction import Databases
from dibs.errors import InvalidArgument
from dibs.results import result_of
from dibs.retry import Snooze
from dibs.worker.handler import next_repeat, wrapped
from dibs.worker.run_end import RunEnd, failed, succeeded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dibs.client.app import App
    from dibs.client.task import Task
    from dibs.job import Claimed, NewJob


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The result of an attempt: its end as a worker would report it, the handler's exception, and its follow-ups."""

    end: RunEnd
    error: Exception | None = None
    follow_ups: tuple[NewJob, ...] = ()


@dataclass(frozen=True, slots=True)
class PreparedAttempt:
    """An attempt that can be run: the handler, what it takes, and the context variables it sees."""

    task: Task[Any, Any]
    ctx: Context
    call: Callable[[], Any]
    databases: Databases | None
    variables: contextvars.Context = field(default_factory=contextvars.copy_context)
    began: float = field(default_factory=time.monotonic)

    @property
    def limit(self) -> float | None:
        """Seconds that the handler may take."""
        return self.task.settings.timeout


def attempt(app: App, job: Claimed, dsn: str | None) -> AttemptResult:
    """Run an attempt in this thread; ``dsn`` is the database of its transactions."""
    prepared = _prepare(app, job, dsn)
    if isinstance(prepared, AttemptResult):
        return prepared
    try:
        with _soft_timeout(prepared):
            return _end_of_value(prepared, _call_handler(app, prepared))
    except Exception as error:
        return _end_of_error(prepared, error)
    finally:
        if prepared.databases is not None:
            prepared.databases.sync.close()


async def aattempt(app: App, job: Claimed, dsn: str | None) -> AttemptResult:
    """Run an attempt on this event loop; a plain function in a thread."""
    prepared = _prepare(app, job, dsn)
    if isinstance(prepared, AttemptResult):
        return prepared
    try:
        with _soft_timeout(prepared):
            if prepared.task.is_async:
                value = await asyncio.create_task(_call_async(prepared), context=prepared.variables)
            else:
                value = await asyncio.to_thread(_call_sync, prepared)
        return _end_of_value(prepared, value)
    except Exception as error:
        return _end_of_error(prepared, error)
    finally:
        if prepared.databases is not None:
            await prepared.databases.close()


def _prepare(app: App, job: Claimed, dsn: str | None) -> PreparedAttempt | AttemptResult:
    task = app.tasks.get(job.kind)
    if task is None:
        return AttemptResult(RunEnd(job, "park", error=f"no task {job.kind}"))
    databases = None if dsn is None else Databases(dsn, 1)
    ctx = Context(job, databases)
    try:
        arguments: Any = task.arguments.read(job._payload)
    except InvalidArgument as error:
        return AttemptResult(failed(ctx, task.settings.retry, error, time.monotonic(), final=True), error)
    if task.settings.batch is not None:
        arguments = [arguments["item"]]
    ctx.follow_ups.extend(next_repeat(task, job))
    handler = wrapped(task, app.middleware)
    prepared = PreparedAttempt(task, ctx, lambda: handler(ctx, arguments), databases)
    prepared.variables.run(enter, ctx)
    return prepared


def _call_handler(app: App, prepared: PreparedAttempt) -> Any:
    if not prepared.task.is_async:
        return _call_sync(prepared)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return prepared.variables.run(asyncio.run, _on_own_loop(app, prepared))
    # This thread has a loop that waits for us, so the handler gets another one in a separate thread.
    with ThreadPoolExecutor(1, "dibs-inline") as threads:
        return threads.submit(prepared.variables.run, asyncio.run, _on_own_loop(app, prepared)).result()


async def _on_own_loop(app: App, prepared: PreparedAttempt) -> Any:
    try:
        return await _call_async(prepared)
    finally:
        await app.aclose()
        if prepared.databases is not None:
            await prepared.databases.asynchronous.close()


@contextmanager
def _soft_timeout(prepared: PreparedAttempt) -> Iterator[None]:
    """Set the handler's ``should_stop`` when its soft timeout is over, if it has one."""
    soft = prepared.task.settings.soft_timeout
    if soft is None:
        yield
        return
    timer = Timer(soft, tell_stop, (prepared.ctx, "timeout"))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


async def _call_async(prepared: PreparedAttempt) -> Any:
    try:
        async with asyncio.timeout(prepared.limit) as timer:
            return await prepared.call()
    except TimeoutError as error:
        if not timer.expired():
            raise
        raise _too_slow(prepared) from error


def _call_sync(prepared: PreparedAttempt) -> Any:
    value = prepared.variables.run(prepared.call)
    # Nobody can stop it from outside. A worker would not have waited, so its result is dropped.
    if prepared.limit is not None and time.monotonic() - prepared.began > prepared.limit:
        raise _too_slow(prepared)
    return value


def _too_slow(prepared: PreparedAttempt) -> TimeoutError:
    return TimeoutError(f"{prepared.task.name} took longer than {prepared.limit:g} s")


def _end_of_value(prepared: PreparedAttempt, value: Any) -> AttemptResult:
    """End an attempt whose handler returned. Raise the error that a batch handler returned for its only job."""
    task, ctx = prepared.task, prepared.ctx
    if task.settings.batch is not None:
        value = _only_outcome(task, value)
    try:
        kept = result_of(value)
    except InvalidArgument as error:
        return AttemptResult(failed(ctx, task.settings.retry, error, prepared.began, final=True), error)
    return AttemptResult(succeeded(ctx, task.settings.retry, kept, prepared.began), follow_ups=tuple(ctx.follow_ups))


def _only_outcome(task: Task[Any, Any], returned: Any) -> Any:
    """Return the outcome that a batch handler returned for its only job. Raise it if it is an error."""
    if returned is None:
        return None
    if not isinstance(returned, list | tuple) or len(returned) != 1:
        raise TypeError(f"{task.name} returned {returned!r} for 1 job, not a list with one outcome or None")
    if isinstance(returned[0], BaseException):
        raise returned[0]
    return returned[0]


def _end_of_error(prepared: PreparedAttempt, error: Exception) -> AttemptResult:
    end = failed(prepared.ctx, prepared.task.settings.retry, error, prepared.began)
    return AttemptResult(end, None if isinstance(error, Snooze) else error)
