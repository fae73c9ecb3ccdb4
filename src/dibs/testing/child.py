"""What :func:`dibs.testing.run_worker` runs: a worker of an app in a process of its own, until nothing is due."""

from __future__ import annotations

import asyncio
import pkgutil
import sys

from dibs.worker import Worker, WorkerSettings


def main(path: str, dsn: str, *queues: str) -> None:
    """Drain the app that ``module:name`` stands for."""
    app = pkgutil.resolve_name(path)
    app.dsn = dsn
    names = queues or tuple(sorted({task.settings.queue for task in app.tasks.values()}))
    asyncio.run(Worker(app, WorkerSettings(names, concurrency=1, drain=True, upkeep=False)).run())


if __name__ == "__main__":
    main(*sys.argv[1:])
