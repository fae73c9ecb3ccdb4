"""Databases for tests, and servers that a test may stop: copies of one made before, for initdb takes long."""

from __future__ import annotations

import itertools
import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from dibs.embedded import UNSAFE_FAST, Server
from dibs.embedded.temporary import guarded_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import LiteralString

SMALL = {**UNSAFE_FAST, "shared_buffers": "32MB"}
RENEW = 50
"""After so many databases a connection is renewed: it gets slower with each that it has dropped."""


class Databases:
    """The databases of tests in one server, made and dropped over one connection: a new one takes 5 ms."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._numbers = itertools.count(1)
        self._connect()

    def _connect(self) -> None:
        self._admin: psycopg.Connection[Any] = psycopg.connect(self._server.dsn("postgres"), autocommit=True)

    def close(self) -> None:
        self._admin.close()

    @contextmanager
    def copy(self, template: str = "template1") -> Iterator[str]:
        """A copy of a database, which ends with the block; its DSN."""
        if (number := next(self._numbers)) % RENEW == 0:
            self._admin.close()
            self._connect()
        name = f"test_{os.getpid()}_{number}"
        self._do("create database {} template {} strategy file_copy", name, template)
        yield self._server.dsn(name)
        self._do("drop database {} with (force)", name)

    def _do(self, statement: LiteralString, *names: str) -> None:
        self._admin.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


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
