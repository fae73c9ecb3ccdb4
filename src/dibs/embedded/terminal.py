"""Runs a program on the terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def run(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Run a program with our terminal and environment. Return its exit code."""
    # Other variables of libpq are removed: a PGHOSTADDR or PGSERVICE would lead to another server.
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    with _interrupts_left_to_it():
        return subprocess.run(argv, env=ours | dict(env), check=False).returncode


@contextmanager
def _interrupts_left_to_it() -> Iterator[None]:
    # Ctrl-C reaches both processes. It is for a query in psql, and must not end us. A handler,
    # not SIG_IGN: the program would inherit that.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
