"""How long a handler may take: told to stop after its soft timeout, given up after the hard one."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from dibs.client.context import tell_stop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dibs.client.context import Context, Tell
    from dibs.client.task import Task


@contextlib.asynccontextmanager
async def within(task: Task[Any, Any], here: Context, tell: Tell | None = None) -> AsyncIterator[None]:
    """Let a handler take no longer than its timeout. Waiting for a thread or a process is not the handler's time.

    ``tell`` is how to tell one that runs elsewhere, in a thread or a process, that it should stop.
    """
    here._tell = tell
    soft = _after(task.settings.soft_timeout, here)
    try:
        async with asyncio.timeout(task.settings.timeout) as limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        _tell_all(here)
        raise TimeoutError(f"{task.name} took longer than {task.settings.timeout:g} s") from error
    finally:
        if soft is not None:
            soft.cancel()


def _after(seconds: float | None, here: Context) -> asyncio.TimerHandle | None:
    return None if seconds is None else asyncio.get_running_loop().call_later(seconds, _tell_all, here)


def _tell_all(here: Context) -> None:
    for one in here.batch:
        tell_stop(one, "timeout")


def in_thread(_: object) -> None:
    """Tell a handler in a thread: it looks by itself."""
