"""The process that :func:`dibs.testing.run_worker` starts: a worker of an app that runs until nothing is due."""

from __future__ import annotations

import pkgutil
import sys


def main(path: str, dsn: str, *queues: str) -> None:
    """Drain the app that ``module:name`` stands for."""
    app = pkgutil.resolve_name(path)
    app.dsn = dsn
    given = {"queues": queues} if queues else {}
    app.run_worker(**given, slots=1, drain=True, upkeep=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
