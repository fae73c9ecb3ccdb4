"""Runs an event loop that no task can keep from ending."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING, Any, TypeVar

from dibs.runtime.ending import end, wait_at_most

if TYPE_CHECKING:
    from collections.abc import Coroutine

R = TypeVar("R")

LEFTOVERS_END_WITHIN = 2.0
"""Seconds that tasks which are left have to end when the loop ends."""

log = logging.getLogger("dibs")


def run(main: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine as ``asyncio.run`` does. But no other task can end the loop, or keep it from ending."""
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        return _run(loop, loop.create_task(main))
    finally:
        _run(loop, loop.create_task(end(asyncio.all_tasks(loop), within=LEFTOVERS_END_WITHIN)))
        _run(loop, loop.create_task(wait_at_most(loop.shutdown_asyncgens(), LEFTOVERS_END_WITHIN)))
        asyncio.set_event_loop(None)
        loop.close()


def _run(loop: asyncio.AbstractEventLoop, task: asyncio.Task[R]) -> R:
    """Run until the task is done, though asyncio lets a KeyboardInterrupt or SystemExit of any task end the loop."""
    is_interrupted = False
    while True:
        try:
            return loop.run_until_complete(task)
        except (KeyboardInterrupt, SystemExit) as error:
            if task.done():
                raise
            if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                is_interrupted = True  # By Ctrl-C, for which Python's own handler raises it.
                task.cancel()
            else:  # By a task that a handler started. The code that awaits that task gets the error, too.
                log.error("a task that a handler started raised %r", error)
        except asyncio.CancelledError:
            if is_interrupted:
                raise KeyboardInterrupt from None
            raise
