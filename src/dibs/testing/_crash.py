"""Worker processes that crash at named points, where the test says."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dibs.runtime.points import VARIABLE, crash_at
from dibs.testing import child

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a worker process: its exit code, or minus the signal that killed it, and its output."""

    status: int
    output: str

    @property
    def crashed(self) -> bool:
        """True if it was killed, as it is at a crash point."""
        return self.status < 0


def run_worker(
    app: str, dsn: str, *, crash: str | None = None, nth: int = 1, queues: Sequence[str] = (), timeout: float = 60.0
) -> Ended:
    """Run a worker in a separate process until nothing is due, or until it crashes at the point ``crash``.

    ``app`` is ``module:name``; the process finds modules where this one does. It does no upkeep: jobs that it held in
    a crash stay leased, until the clock has moved past the lease and :func:`drain` rescues them.
    """
    env = {name: value for name, value in os.environ.items() if name != VARIABLE}
    env["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)  # noqa: PTH109
    if crash is not None:
        env |= crash_at(crash, nth=nth)
    done = subprocess.run(
        [sys.executable, "-P", "-m", child.__name__, app, dsn, *queues],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout)
