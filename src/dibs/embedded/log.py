"""The server's log: one file that stays small."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from dibs.embedded.account import Account

FILE = "server.log"
LIMIT = 16 * 2**20
KEPT = 2**20


def open_log(data_dir: Path, account: Account) -> int:
    """Open the log for writing, always at its end, even if another process shortens the file."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    log = os.open(data_dir / FILE, flags, 0o600)
    account.own(log)
    return log


def keep_small(data_dir: Path, account: Account) -> None:
    """Shorten the log of a server that runs for long, again and again."""
    log = open_log(data_dir, account)
    try:
        trim(log)
    finally:
        os.close(log)


def trim(log: int) -> None:
    """Keep the last lines of a log that has grown too large."""
    size = os.fstat(log).st_size
    if size > LIMIT:
        kept = os.pread(log, KEPT, size - KEPT)
        os.ftruncate(log, 0)
        os.write(log, kept[kept.find(b"\n") + 1 :])


def since(log: int, start: int) -> str:
    """Return the log after a position."""
    end = os.fstat(log).st_size
    start = max(start, end - KEPT)
    return os.pread(log, end - start, start).decode(errors="replace")
