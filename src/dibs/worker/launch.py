"""Runs a worker from code: ``App.run_worker`` and ``App.arun_worker``."""

from __future__ import annotations

import asyncio
import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING

from dibs.errors import HandlersLeft, InvalidArgument
from dibs.runtime.guard import Guard
from dibs.runtime.running import run
from dibs.runtime.signals import obeying
from dibs.worker.worker import Worker
from dibs.worker_settings import WorkerSettings

if TYPE_CHECKING:
    from dibs.client.app import App
    from dibs.worker_settings import WorkerOptions


def settings_for(app: App, options: WorkerOptions) -> WorkerSettings:
    """Make the settings. Without ``queues`` the worker serves those of the app's tasks."""
    queues = sorted({task.settings.queue for task in app.tasks.values()})
    given: WorkerOptions = {"queues": queues, **options}
    return WorkerSettings(**given)


def run_worker(app: App, options: WorkerOptions) -> int:
    """Work until a signal says stop. Return the number of jobs that were claimed and are no longer held."""
    refuse_running_loop("run_worker()", "await arun_worker(…)")
    return run(_until_signal(app, Worker(app, settings_for(app, options))))


def refuse_running_loop(what: str, instead: str) -> None:
    """Raise if this thread runs an event loop, which ``what`` would block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise InvalidArgument(f"{what} would block the event loop it is called on", hint=instead)


async def _until_signal(app: App, worker: Worker) -> int:
    is_main = threading.current_thread() is threading.main_thread()  # Python handles signals only there.
    guard = Guard()
    listening = obeying(worker.stop, worker.hurry, guard=guard, grace=worker.settings.grace)
    with listening if is_main else nullcontext():
        try:
            await worker.run()
        finally:
            await app.aclose()
            guard.disarm()
    return worker.ended


async def arun_worker(app: App, options: WorkerOptions) -> int:
    """Work until cancelled, and then stop cleanly. A second cancellation gives the running jobs back at once."""
    worker = Worker(app, settings_for(app, options))
    working = asyncio.create_task(worker.run(), name="dibs-worker")
    stopped: asyncio.CancelledError | None = None
    while not working.done():
        try:
            await asyncio.wait({working})
        except asyncio.CancelledError as error:
            if stopped:
                worker.hurry()
            worker.stop()
            stopped = error
    try:
        working.result()
    except HandlersLeft as left:
        if stopped:
            raise stopped from left
        raise
    if stopped:
        raise stopped
    return worker.ended
