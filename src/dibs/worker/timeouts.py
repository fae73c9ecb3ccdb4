"""A handler's timeouts: it is told to stop after the soft one, and stopped after the hard one."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from dibs.client.context import tell_stop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dibs.client.context import Context, SendStop
    from dibs.client.task import Task


@contextlib.asynccontextmanager
async def limited_by_timeouts(
    task: Task[Any, Any], context: Context, send_stop: SendStop | None = None
) -> AsyncIterator[None]:
    """Apply the timeouts of a task to the block. Enter it when the handler has its thread or process.

    ``send_stop`` passes a reason to stop on to a handler that runs in a thread or a process.
    """
    context._send_stop = send_stop
    soft, hard = task.settings.soft_timeout, task.settings.timeout
    timer = None if soft is None else asyncio.get_running_loop().call_later(soft, _tell_timeout, context)
    try:
        async with asyncio.timeout(hard) as limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        _tell_timeout(context)
        raise TimeoutError(f"{task.name} took longer than {hard:g} s") from error
    finally:
        if timer is not None:
            timer.cancel()


def _tell_timeout(context: Context) -> None:
    for attempt in context.batch:
        tell_stop(attempt, "timeout")


def send_nothing(_: object) -> None:
    """Do nothing: a handler in a thread reads ``should_stop`` of the same context."""
