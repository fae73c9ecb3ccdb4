"""A lock, so that one process at a time makes, starts or stops the server of a data folder."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dibs.embedded.postmaster import POLL
from dibs.errors import EmbeddedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dibs.embedded.account import Account

TIMEOUT = 120.0
"""Seconds to wait for the lock: longer than one start may take."""


@contextmanager
def locked(target: Path, account: Account) -> Iterator[int]:
    """Hold the lock beside a folder; yields its file descriptor.

    A child that inherits the descriptor goes on holding the lock when we are killed.
    """
    path = target.with_name(f".{target.name}.lock")
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        account.own(lock)
        _acquire(lock, path)
        yield lock
    finally:
        os.close(lock)


def _acquire(lock: int, path: Path) -> None:
    until = time.monotonic() + TIMEOUT
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise EmbeddedError(
                    f"another process has held {path} for {TIMEOUT:.0f} s",
                    hint="it is starting or stopping the same server; see what it waits for",
                ) from None
        time.sleep(POLL)
