"""Runs one attempt: reads the arguments, calls the handler, and says how the run ended."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from dibs.client.context import Context, enter
from dibs.client.transaction import Databases
from dibs.errors import InvalidArgument
from dibs.events import JobStarted, KindUnknown
from dibs.runtime.points import reach
from dibs.worker.handler import next_repeat, wrapped
from dibs.worker.processes import Processes
from dibs.worker.run_end import RunEnd, failed, succeeded
from dibs.worker.threads import Threads
from dibs.worker.timeouts import limited_by_timeouts, send_nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from dibs.client.app import App
    from dibs.client.context import Note
    from dibs.client.task import Task
    from dibs.job import Claimed
    from dibs.worker_settings import WorkerSettings


class Executor:
    """Runs attempts of an app's tasks: on the loop, in threads, or in processes."""

    def __init__(
        self, app: App, settings: WorkerSettings, dsn: str, note: Note, runnable: Mapping[str, Task[Any, Any]]
    ) -> None:
        self._note = note
        self._tasks = runnable
        self._events = app.events
        self._databases = Databases(dsn, settings.connections)
        self._threads = Threads(settings.threads)
        self._processes = Processes(dsn, settings.pool)
        self._handlers = {kind: wrapped(task, app.middleware) for kind, task in app.tasks.items()}

    async def close(self) -> None:
        """Kill the processes, let idle threads end, and close the handlers' connections."""
        self._processes.close()
        self._threads.close()
        await self._databases.close()

    def task(self, kind: str) -> Task[Any, Any] | None:
        """Return the task of a kind, if the app has it and may run it."""
        return self._tasks.get(kind)

    def park(self, job: Claimed) -> RunEnd:
        """Park a job of a kind that we do not run: in a rolling deploy another worker does."""
        self._events.tell(KindUnknown(job))
        return RunEnd(job, "park", error=f"no task {job.kind}")

    def context(self, job: Claimed) -> Context:
        """Make the context of an attempt that is about to begin."""
        return Context(job, self._databases, self._note)

    async def attempt(self, task: Task[Any, Any], context: Context, stopping: Container[bytes]) -> RunEnd:
        """Run one attempt to its end. Any exception fails the job, except that a cancellation of ours is passed on.

        A cancellation is ours if ``stopping`` holds the run; otherwise the handler made it itself.
        """
        job, began = context.job, context._began
        try:
            try:
                arguments = task.arguments.read(job._payload)
            except InvalidArgument as error:
                return failed(context, task.settings.retry, error, began, final=True)
            if task.settings.repeat is not None:
                context.follow_ups.extend(next_repeat(task, job))
            enter(context)
            if self._events.wants(JobStarted):
                self._events.tell(_started(job))
            reach("worker.before_run")
            if task.is_async and not task.settings.is_bounded:
                result = await self._handlers[task.name](context, arguments)
                end = succeeded(context, task.settings.retry, result, began)
            else:
                end = await self._run(task, context, arguments, began)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and job._run_key in stopping:
                raise
            end = failed(context, task.settings.retry, error, began)
        reach("worker.after_run")
        return end

    async def _run(self, task: Task[Any, Any], context: Context, arguments: Any, began: float) -> RunEnd:
        if task.settings.process:
            return await self._processes.run(task, context, lambda send: limited_by_timeouts(task, context, send))
        result = await self._call(task, context, arguments)
        return succeeded(context, task.settings.retry, result, began)

    async def _call(self, task: Task[Any, Any], context: Context, arguments: Any) -> Any:
        handler = self._handlers[task.name]
        if not task.is_async:
            # If we are cancelled, the thread runs on to its end; its job's token is void by then.
            return await self._threads.run(
                lambda: handler(context, arguments), lambda: limited_by_timeouts(task, context, send_nothing)
            )
        async with limited_by_timeouts(task, context):
            return await handler(context, arguments)

    async def attempt_batch(
        self, task: Task[Any, Any], attempts: Sequence[Context], is_stopping: Callable[[], bool]
    ) -> list[RunEnd]:
        """Run many attempts as one call of a batch handler. Return an end for each.

        A job whose arguments cannot be read fails alone, and the handler gets the others.
        """
        began = time.monotonic()
        ends: dict[int, RunEnd] = {}
        readable, items = [], []
        for n, context in enumerate(attempts):
            try:
                items.append(task.arguments.read(context.job._payload)["item"])
                readable.append((n, context))
            except Exception as error:
                final = isinstance(error, InvalidArgument)
                ends[n] = failed(context, task.settings.retry, error, began, final=final)
        if items:
            results = await self._call_batch(task, [context for _, context in readable], items, is_stopping)
            for (n, context), result in zip(readable, results, strict=True):
                ends[n] = _end_of(task, context, result, began)
        return [ends[n] for n in range(len(attempts))]

    async def _call_batch(
        self, task: Task[Any, Any], contexts: list[Context], items: list[Any], is_stopping: Callable[[], bool]
    ) -> list[Any]:
        """Call a batch handler. Return a result or an exception for each item."""
        first = contexts[0]
        first._batch = tuple(contexts)
        enter(first)
        if self._events.wants(JobStarted):
            for context in contexts:
                self._events.tell(_started(context.job))
        try:
            reach("worker.before_run")
            returned = await self._call(task, first, items)
            reach("worker.after_run")
        except BaseException as raised:
            if isinstance(raised, asyncio.CancelledError) and is_stopping():
                raise
            return [raised] * len(items)
        if returned is None:
            return [None] * len(items)
        if isinstance(returned, list | tuple) and len(returned) == len(items):
            return list(returned)
        wrong = f"{len(returned)} outcomes" if isinstance(returned, list | tuple) else f"a {type(returned).__name__}"
        error = TypeError(f"{task.name} returned {wrong} for {len(items)} jobs, not one for each or None")
        return [error] * len(items)


def _end_of(task: Task[Any, Any], context: Context, result: Any, began: float) -> RunEnd:
    """The end of one run of a batch, whose ``result`` may be an exception."""
    if not isinstance(result, BaseException):
        try:
            return succeeded(context, task.settings.retry, result, began)
        except BaseException as error:
            result = error
    return failed(context, task.settings.retry, result, began)


def _started(job: Claimed) -> JobStarted:
    return JobStarted(job, job.waited)
