"""One attempt, run in the caller's thread by the steps of a worker.

A worker runs handlers on its event loop, in threads and in processes. Here a plain function is called in the caller's
own thread, with the caller's connections and patches; a coroutine gets an event loop, or the caller's. A batch handler
gets a batch of one.
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
class Ran:
    """The result of an attempt: its outcome, its error, and the jobs that follow it."""

    end: RunEnd
    error: Exception | None = None
    follow_ups: tuple[NewJob, ...] = ()


@dataclass(frozen=True, slots=True)
class Begun:
    """An attempt that can be run: the handler, what it takes, and the context variables it sees."""

    task: Task[Any, Any]
    here: Context
    call: Callable[[], Any]
    databases: Databases | None
    variables: contextvars.Context = field(default_factory=contextvars.copy_context)
    began: float = field(default_factory=time.monotonic)

    @property
    def limit(self) -> float | None:
        """Seconds that the handler may take."""
        return self.task.settings.timeout


def attempt(app: App, job: Claimed, dsn: str | None) -> Ran:
    """Run an attempt in this thread; ``dsn`` is the database of its transactions."""
    begun = _begin(app, job, dsn)
    if isinstance(begun, Ran):
        return begun
    try:
        with _soft_timeout(begun):
            return _ended(begun, _call(app, begun))
    except Exception as error:
        return _raised(begun, error)
    finally:
        if begun.databases is not None:
            begun.databases.sync.close()


async def aattempt(app: App, job: Claimed, dsn: str | None) -> Ran:
    """Run an attempt on this event loop; a plain function in a thread."""
    begun = _begin(app, job, dsn)
    if isinstance(begun, Ran):
        return begun
    try:
        with _soft_timeout(begun):
            if begun.task.is_async:
                value = await asyncio.create_task(_within(begun), context=begun.variables)
            else:
                value = await asyncio.to_thread(_timed, begun)
        return _ended(begun, value)
    except Exception as error:
        return _raised(begun, error)
    finally:
        if begun.databases is not None:
            await begun.databases.close()


def _begin(app: App, job: Claimed, dsn: str | None) -> Begun | Ran:
    task = app.tasks.get(job.kind)
    if task is None:
        return Ran(RunEnd(job, "park", error=f"no task {job.kind}"))
    databases = None if dsn is None else Databases(dsn, 1)
    here = Context(job, databases)
    try:
        arguments: Any = task.arguments.read(job._payload)
    except InvalidArgument as error:
        return Ran(failed(here, task.settings.retry, error, time.monotonic(), final=True), error)
    if task.settings.batch is not None:
        arguments = [arguments["item"]]
    here.follow_ups.extend(next_repeat(task, job))
    handler = wrapped(task, app.middleware)
    begun = Begun(task, here, lambda: handler(here, arguments), databases)
    begun.variables.run(enter, here)
    return begun


def _call(app: App, begun: Begun) -> Any:
    if not begun.task.is_async:
        return _timed(begun)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return begun.variables.run(asyncio.run, _on_own_loop(app, begun))
    # This thread has a loop that waits for us, so the handler gets another one in a separate thread.
    with ThreadPoolExecutor(1, "dibs-inline") as threads:
        return threads.submit(begun.variables.run, asyncio.run, _on_own_loop(app, begun)).result()


async def _on_own_loop(app: App, begun: Begun) -> Any:
    try:
        return await _within(begun)
    finally:
        await app.aclose()
        if begun.databases is not None:
            await begun.databases.asynchronous.close()


@contextmanager
def _soft_timeout(begun: Begun) -> Iterator[None]:
    """Set the handler's ``should_stop`` when its soft timeout is over, if it has one."""
    soft = begun.task.settings.soft_timeout
    timer = Timer(soft or 0.0, tell_stop, (begun.here, "timeout"))
    if soft is not None:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


async def _within(begun: Begun) -> Any:
    try:
        async with asyncio.timeout(begun.limit) as limit:
            return await begun.call()
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise _too_slow(begun) from error


def _timed(begun: Begun) -> Any:
    value = begun.variables.run(begun.call)
    # Nobody can stop it from outside. A worker would not have waited, so its result is dropped.
    if begun.limit is not None and time.monotonic() - begun.began > begun.limit:
        raise _too_slow(begun)
    return value


def _too_slow(begun: Begun) -> TimeoutError:
    return TimeoutError(f"{begun.task.name} took longer than {begun.limit:g} s")


def _ended(begun: Begun, value: Any) -> Ran:
    task, here = begun.task, begun.here
    if task.settings.batch is not None:
        value = _of_batch(task, value)
    try:
        kept = result_of(value)
    except InvalidArgument as error:
        return Ran(failed(here, task.settings.retry, error, begun.began, final=True), error)
    return Ran(succeeded(here, task.settings.retry, kept, begun.began), follow_ups=tuple(here.follow_ups))


def _of_batch(task: Task[Any, Any], returned: Any) -> Any:
    if returned is None:
        return None
    if not isinstance(returned, list | tuple) or len(returned) != 1:
        raise TypeError(f"{task.name} returned {returned!r} for 1 job, not a list with one outcome or None")
    if isinstance(returned[0], BaseException):
        raise returned[0]
    return returned[0]


def _raised(begun: Begun, error: Exception) -> Ran:
    end = failed(begun.here, begun.task.settings.retry, error, begun.began)
    return Ran(end, None if isinstance(error, Snooze) else error)
