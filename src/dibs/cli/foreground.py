"""A worker in the foreground: its signals, its probes and its metrics."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dibs.client.client_async import AsyncClient
from dibs.errors import InvalidArgument
from dibs.metrics import Prometheus
from dibs.runtime.children import HURRY, file_of_child, is_child, when_orphaned
from dibs.runtime.guard import Guard
from dibs.runtime.http import Pages
from dibs.runtime.signals import CLOSING, obeying
from dibs.worker import Worker
from dibs.worker.health import keep_fresh, pages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from contextlib import AbstractContextManager

    from dibs.client.app import App
    from dibs.runtime.http import Route
    from dibs.worker import WorkerSettings

FOLDER = "DIBS_METRICS_FOLDER"
"""The environment variable by which a child learns the folder to share its metrics in."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The places where a worker shows its health and metrics."""

    host: str
    health: int | None = None
    metrics: int | None = None
    health_file: Path | None = None

    @property
    def is_probed(self) -> bool:
        """True if the health is shown anywhere."""
        return self.health is not None or self.health_file is not None

    @asynccontextmanager
    async def serve(self, probes: Mapping[str, Route], metrics: Route | None) -> AsyncIterator[None]:
        """Serve the given routes; on one port, if both have the same."""
        routes: dict[int, dict[str, Route]] = {}
        if self.health is not None:
            routes.setdefault(self.health, {}).update(probes)
        if self.metrics is not None and metrics is not None:
            routes.setdefault(self.metrics, {})["/metrics"] = metrics
        async with AsyncExitStack() as stack:
            for port, served in routes.items():
                opened = Pages(served)
                try:
                    await opened.open(port, self.host)
                except OSError as error:
                    raise InvalidArgument(
                        f"port {port} of {self.host} cannot be opened: {error.strerror or error}",
                        hint="another process may have it; choose another port",
                    ) from None
                stack.push_async_callback(opened.close)
            yield


async def work(app: App, settings: WorkerSettings, endpoints: Endpoints) -> Worker:
    """Work until a signal or an operator says stop. Return the worker, which knows its result."""
    worker, guard = Worker(app, settings), Guard()
    worker.on_operator_stop = _stopping(worker, guard)
    async with AsyncExitStack() as stack:
        stack.callback(guard.shorten, CLOSING)
        stack.enter_context(_obeying(worker, guard))
        stack.push_async_callback(app.aclose)
        if is_child():
            _stop_orphan(worker, guard)
            await _share(app, stack)
        else:
            metrics = None
            if endpoints.metrics is not None:
                client = AsyncClient(app.dsn, pool_size=1)
                stack.push_async_callback(client.close)
                metrics = Prometheus(app.events, client).page
            await stack.enter_async_context(endpoints.serve(pages(worker.trouble, worker.unready), metrics))
        if endpoints.health_file is not None:
            path = file_of_child(endpoints.health_file)
            stack.enter_context(keep_fresh(path, lambda: worker.trouble() or worker.unready()))
        await worker.run()
    return worker


async def _share(app: App, stack: AsyncExitStack) -> None:
    if folder := os.environ.get(FOLDER):
        shared = Prometheus(app.events).share(Path(folder))
        await shared.open()
        stack.push_async_callback(shared.close)


def _obeying(worker: Worker, guard: Guard) -> AbstractContextManager[None]:
    # A process manager may signal a whole group: under a parent, only the parent's own signal means "now".
    now = HURRY if is_child() else None
    return obeying(worker.stop, worker.hurry, guard=guard, grace=worker.settings.grace, at_once=now)


def _stop_orphan(worker: Worker, guard: Guard) -> None:
    """Stop when the parent is gone. A thread watches it, because a handler may block the event loop."""
    threading.Thread(target=when_orphaned, args=(_stopping(worker, guard),), name="dibs-parent", daemon=True).start()


def _stopping(worker: Worker, guard: Guard) -> Callable[[], None]:
    """Return a function that stops a worker as SIGTERM does, from any thread."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        guard.arm(worker.settings.grace + CLOSING)
        loop.call_soon_threadsafe(worker.stop)

    return stop
