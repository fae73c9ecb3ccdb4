"""Several ``dibs worker`` processes under one parent."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from dibs.cli.exits import Exit
from dibs.cli.foreground import FOLDER
from dibs.client.client_async import AsyncClient
from dibs.events import ChildDied, ChildLeft, ChildStarted, CodeChanged, Events
from dibs.metrics import Prometheus
from dibs.runtime.children import Children
from dibs.runtime.signals import obeying
from dibs.runtime.watch import changed
from dibs.worker.health import keep_fresh, pages
from dibs.worker.pulse import Pulse, watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dibs.cli.foreground import Endpoints
    from dibs.runtime.http import Route

DSN = "DIBS_PARENT_DSN"
"""The environment variable that gives children the DSN: other users can see command lines."""


async def run_children(
    count: int,
    events: Events,
    endpoints: Endpoints,
    locate: Callable[[], str | None],
    reload: bool,
    drain: bool,
    grace: float,
) -> int:
    """Run the workers until a signal says stop. Return the exit status."""
    children = Children(
        lambda _: [sys.executable, "-P", "-m", "dibs", *without_dsn(sys.argv[1:])],
        count,
        replace_done=not drain,
        grace=grace,
        status_to_wait=Exit.FAILED if reload else None,
        status_to_leave=Exit.ASKED,
        started=lambda pid: events.tell(ChildStarted(pid)),
        died=lambda pid, status: events.tell(ChildDied(pid, status)),
        left=lambda pid: events.tell(ChildLeft(pid)),
    )
    async with AsyncExitStack() as stack:
        stack.enter_context(obeying(children.stop, children.hurry))
        if reload:
            # Compiled code counts as current if its source has the same size and second: a quick edit would be missed.
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
            watching = asyncio.create_task(_reload(children, events))
            stack.callback(watching.cancel)
        metrics = None if endpoints.metrics is None else _share_metrics(events, locate(), stack)

        pulse = Pulse(Events())  # The workers report outages; the probes of the parent need to know of them.
        if endpoints.is_probed and (dsn := locate()):
            await stack.enter_async_context(watched(dsn, pulse))

        def unready() -> str | None:
            return "not all worker processes run" if children.missing else pulse.trouble()

        await stack.enter_async_context(endpoints.serve(pages(lambda: None, unready), metrics))
        if endpoints.health_file is not None:
            stack.enter_context(keep_fresh(endpoints.health_file, unready))
        return await children.run()


def without_dsn(arguments: Sequence[str]) -> Iterator[str]:
    """Take the DSN out of a command line, which other users can see.

    >>> list(without_dsn(["worker", "--dsn", "postgresql:///a", "--dsn=postgresql:///b", "shop:app"]))
    ['worker', 'shop:app']
    """
    rest = iter(arguments)
    for word in rest:
        if word == "--dsn":
            next(rest, None)
        elif not word.startswith("--dsn="):
            yield word


def _share_metrics(events: Events, dsn: str | None, stack: AsyncExitStack) -> Route:
    """Tell the children where to share their metrics. Return the route to all of them.

    Without a DSN the metrics of the database are missing.
    """
    # The folder holds the children's sockets, and a socket's path must be short.
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dibs-"))
    os.environ[FOLDER] = folder
    client = None if dsn is None else AsyncClient(dsn, pool_size=1)
    if client is not None:
        stack.push_async_callback(client.close)
    return Prometheus(events, client, children=Path(folder)).page


async def _reload(children: Children, events: Events) -> None:
    while True:
        files = await changed(Path.cwd())
        events.tell(CodeChanged(tuple(map(str, files))))
        children.restart()
