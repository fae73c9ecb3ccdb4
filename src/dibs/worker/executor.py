"""Runs one attempt: find the task, read its arguments, call it, and say what came of it."""

from __future__ import annotations

import asyncio
import contextvars
import traceback
from typing import TYPE_CHECKING, Any

from dibs.client.context import Context, enter
from dibs.errors import InvalidArgument
from dibs.results import result_of
from dibs.retry import Snooze
from dibs.worker.report import Report

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from dibs.client.app import App
    from dibs.client.task import Task
    from dibs.job import Claimed

UNKNOWN_KIND_DELAY = 5.0
"""A job of a kind this worker does not know is left for others, after this many seconds."""


class Executor:
    """Runs attempts of an app's tasks."""

    def __init__(self, app: App, threads: ThreadPoolExecutor) -> None:
        self._app = app
        self._threads = threads

    async def attempt(self, job: Claimed) -> Report:
        """Run one attempt to its end; only a cancellation of ours escapes."""
        task = self._app.tasks.get(job.kind)
        if task is None:
            return Report(job, "release", error=f"no task {job.kind}", delay=UNKNOWN_KIND_DELAY)
        try:
            arguments = task.arguments.unpack(job.payload)
        except InvalidArgument as error:
            return Report(job, "fail", error=f"InvalidArgument: {error}", final=True)
        here = Context(job)
        enter(here)
        try:
            result = result_of(await self._call(task, arguments))
        except Snooze as snooze:
            return Report(job, "snooze", delay=snooze.delay)
        except Exception as error:
            return _failed(task, job, error)
        return Report(job, "complete", result, follow_ups=tuple(here.follow_ups))

    async def _call(self, task: Task[Any, Any], arguments: dict[str, Any]) -> Any:
        if task.settings.timeout is None:
            return await self._run(task, arguments)
        try:
            async with asyncio.timeout(task.settings.timeout):
                return await self._run(task, arguments)
        except TimeoutError as error:
            raise TimeoutError(f"{task.name} took longer than {task.settings.timeout:g} s") from error

    async def _run(self, task: Task[Any, Any], arguments: dict[str, Any]) -> Any:
        if task.is_async:
            return await task.function(**arguments)
        # An abandoned thread goes on to its end, but its job's token is no longer good for anything.
        run = contextvars.copy_context().run
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: run(task.function, **arguments))


def _failed(task: Task[Any, Any], job: Claimed, error: Exception) -> Report:
    text = "".join(traceback.format_exception_only(error)).strip()
    trace = "".join(traceback.format_tb(error.__traceback__))
    return Report(
        job,
        "fail",
        error=f"{text}\n{trace}",
        final=task.settings.retry.ends(error),
        delay=task.settings.retry.delay(error),
    )
