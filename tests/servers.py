"""Databases for tests, and servers that a test may stop: copies of one made before, for initdb takes long."""

from __future__ import annotations

import itertools
import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dibs.db.admin import create_database, drop_database
from dibs.embedded import UNSAFE_FAST, Server
from dibs.embedded.temporary import guarded_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL = {**UNSAFE_FAST, "shared_buffers": "32MB"}
_numbers = itertools.count(1)


@contextmanager
def database(server: Server, template: str = "template1") -> Iterator[str]:
    """A copy of a database, which ends with the block; its DSN."""
    # Over a fresh connection each time: one that is kept gets slower with each database it has dropped.
    admin, name = server.dsn("postgres"), f"test_{os.getpid()}_{next(_numbers)}"
    create_database(admin, name, template=template, by_files=True)
    yield server.dsn(name)
    drop_database(admin, name)


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
