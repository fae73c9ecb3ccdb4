"""Servers that a test may stop: copies of one that was made before, for initdb and the install take long."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dibs.embedded import UNSAFE_FAST, Server
from dibs.embedded.temporary import guarded_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL = {**UNSAFE_FAST, "shared_buffers": "32MB"}


def copy(data_dir: Path, to: Path) -> None:
    """Copy the data folder of a stopped server, with its owner and rights."""
    subprocess.run(["cp", "-a", data_dir, to], check=True)


@contextmanager
def copied(data_dir: Path) -> Iterator[Server]:
    """A server at a copy of that folder, which ends with the block."""
    with guarded_folder(in_memory=True) as folder:
        copy(data_dir, folder / "data")
        server = Server(folder / "data", settings=SMALL)
        try:
            yield server.start()
        finally:
            server.stop("immediate")
