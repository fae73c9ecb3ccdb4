"""A task made ready to run: its function inside its middleware."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from dibs.client.middleware import hooks
from dibs.client.task import REPEATED_KEY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dibs.client.context import Context
    from dibs.client.middleware import Middleware
    from dibs.client.task import Task
    from dibs.job import Claimed, NewJob


def wrapped(task: Task[Any, Any], middleware: Sequence[Middleware]) -> Callable[[Context, dict[str, Any]], Any]:
    """Wrap the task's function in its middleware. The handler is async if the function is."""
    handler = _unwrapped(task)
    for hook in hooks(middleware, "arun" if task.is_async else "run"):
        handler = functools.partial(_through, hook, handler)
    return handler


def _unwrapped(task: Task[Any, Any]) -> Callable[[Context, Any], Any]:
    function = task.function
    if task.settings.batch is not None:
        return lambda _, items: function(items)
    return lambda _, arguments: function(**arguments)


def _through(
    hook: Callable[[Context, Callable[[], Any]], Awaitable[Any] | Any],
    handler: Callable[[Context, Any], Any],
    context: Context,
    arguments: Any,
) -> Any:
    return hook(context, lambda: handler(context, arguments))


def next_repeat(task: Task[Any, Any], job: Claimed) -> Sequence[NewJob]:
    """The next job of a task with ``repeat``, as a follow-up: if this job succeeds, it is enqueued in the same commit.

    It gets the dedup key that this job had. A header remembers that key, and goes from each job to the next.
    """
    if task.settings.repeat is None:
        return ()
    options: Any = {"delay": task.settings.repeat, "priority": job.priority}
    if (key := (job.headers or {}).get(REPEATED_KEY)) is not None:
        options["dedup_key"] = key
    queue, _, _shard = job.queue.partition("#")  # The enqueue chooses a shard; it refuses a job that names one.
    return (task.using(queue=queue, **options).job_of(job.payload),)
