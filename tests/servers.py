"""Databases for tests, and servers that a test may stop: copies of one made before, for initdb takes long."""

from __future__ import annotations

import itertools
import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dibs.embedded import UNSAFE_FAST, Server
from dibs.embedded.temporary import guarded_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import psycopg

SMALL = {**UNSAFE_FAST, "shared_buffers": "32MB"}
_numbers = itertools.count(1)


@contextmanager
def database(server: Server, admin: psycopg.Connection[Any], template: str = "template1") -> Iterator[str]:
    """A copy of a database, which ends with the block; its DSN."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    admin.execute(f"create database {name} template {template} strategy file_copy")
    yield server.dsn(name)
    admin.execute(f"drop database {name} with (force)")


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
