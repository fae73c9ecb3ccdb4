"""Runs one attempt: find the task, read its arguments, call it where it belongs, and say how it ended."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from dibs.client.context import Context, enter
from dibs.client.transaction import Databases
from dibs.errors import InvalidArgument
from dibs.events import JobStarted, KindUnknown
from dibs.runtime.points import reach
from dibs.worker.handler import again, wrapped
from dibs.worker.processes import Processes
from dibs.worker.run_end import RunEnd, failed, succeeded
from dibs.worker.threads import Threads
from dibs.worker.within import in_thread, within

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
        """The task of a kind, if the app has it and may run it."""
        return self._tasks.get(kind)

    def unknown(self, job: Claimed) -> RunEnd:
        """Leave a job of a kind we do not run for others: in a rolling deploy another worker does."""
        self._events.tell(KindUnknown(job))
        return RunEnd(job, "park", error=f"no task {job.kind}")

    def context(self, job: Claimed) -> Context:
        """An attempt that has not begun."""
        return Context(job, self._databases, self._note)

    async def attempt(self, task: Task[Any, Any], here: Context, told: Container[bytes]) -> RunEnd:
        """Run one attempt to its end: whatever is raised, the job failed, unless it is one we told to stop."""
        job, began = here.job, here._began
        try:
            try:
                arguments = task.arguments.read(job._payload)
            except InvalidArgument as error:
                return failed(here, task.settings.retry, error, began, final=True)
            if task.settings.repeat is not None:
                here.follow_ups.extend(again(task, job))
            enter(here)
            if self._events.wants(JobStarted):
                self._events.tell(_started(job))
            reach("worker.before_run")
            if task.is_async and not task.settings.is_bounded:
                result = await self._handlers[task.name](here, arguments)
                end = succeeded(here, task.settings.retry, result, began)
            else:
                end = await self._run(task, here, arguments, began)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and job._run_key in told:
                raise
            end = failed(here, task.settings.retry, error, began)
        reach("worker.after_run")
        return end

    async def _run(self, task: Task[Any, Any], here: Context, arguments: Any, began: float) -> RunEnd:
        if task.settings.process:
            return await self._processes.run(task, here, lambda tell: within(task, here, tell))
        result = await self._call(task, here, arguments)
        return succeeded(here, task.settings.retry, result, began)

    async def _call(self, task: Task[Any, Any], here: Context, arguments: Any) -> Any:
        handler = self._handlers[task.name]
        if not task.is_async:
            # An abandoned thread goes on to its end, but its job's token is no longer good for anything.
            return await self._threads.run(lambda: handler(here, arguments), lambda: within(task, here, in_thread))
        async with within(task, here):
            return await handler(here, arguments)

    async def attempt_batch(
        self, task: Task[Any, Any], attempts: Sequence[Context], is_told: Callable[[], bool]
    ) -> list[RunEnd]:
        """Run many attempts as one call of a batch handler; an end for each."""
        began = time.monotonic()
        ends: dict[int, RunEnd] = {}
        contexts, items = [], []
        for n, here in enumerate(attempts):
            try:
                items.append(task.arguments.read(here.job._payload)["item"])
                contexts.append((n, here))
            except Exception as error:
                final = isinstance(error, InvalidArgument)
                ends[n] = failed(here, task.settings.retry, error, began, final=final)
        if items:
            answers = await self._answers(task, [here for _, here in contexts], items, is_told)
            for (n, here), answer in zip(contexts, answers, strict=True):
                ends[n] = _outcome(task, here, answer, began)
        return [ends[n] for n in range(len(attempts))]

    async def _answers(
        self, task: Task[Any, Any], contexts: list[Context], items: list[Any], is_told: Callable[[], bool]
    ) -> list[Any]:
        """For each item its result, or an exception."""
        first = contexts[0]
        first._batch = tuple(contexts)
        enter(first)
        if self._events.wants(JobStarted):
            for here in contexts:
                self._events.tell(_started(here.job))
        try:
            reach("worker.before_run")
            told = await self._call(task, first, items)
            reach("worker.after_run")
        except BaseException as raised:
            if isinstance(raised, asyncio.CancelledError) and is_told():
                raise
            return [raised] * len(items)
        if told is None:
            return [None] * len(items)
        if not isinstance(told, list | tuple) or len(told) != len(items):
            wrong = f"{len(told)} outcomes" if isinstance(told, list | tuple) else f"a {type(told).__name__}"
            error = TypeError(f"{task.name} returned {wrong} for {len(items)} jobs, not one for each or None")
            return [error] * len(items)
        return list(told)


def _outcome(task: Task[Any, Any], here: Context, answer: Any, began: float) -> RunEnd:
    if not isinstance(answer, BaseException):
        try:
            return succeeded(here, task.settings.retry, answer, began)
        except BaseException as error:
            answer = error
    return failed(here, task.settings.retry, answer, began)


def _started(job: Claimed) -> JobStarted:
    return JobStarted(job, job.waited)
