"""Databases for tests: each is a copy of a template that has dibs in it."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dibs.db.admin import at_database, create_database, drop_database
from dibs.db.schema import migrate
from dibs.embedded import UNSAFE_FAST, Server
from dibs.testing.clock import Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SETTINGS = {**UNSAFE_FAST, "checkpoint_timeout": "30min", "max_wal_size": "1GB"}


class Databases:
    """Makes databases that are copies of one template. Each is dropped at the end of its block."""

    def __init__(self, dsn: str, template: str, *, by_files: bool = False) -> None:
        self.dsn = dsn
        self.template = template
        self._by_files = by_files

    @contextmanager
    def fresh(self) -> Iterator[str]:
        """Yield the DSN of a new database with dibs in it."""
        name = _name()
        create_database(self.dsn, name, template=self.template, by_files=self._by_files)
        try:
            yield at_database(self.dsn, name)
        finally:
            drop_database(self.dsn, name)


@contextmanager
def databases(dsn: str | None = None, prepare: Callable[[str], object] | None = None) -> Iterator[Databases]:
    """Make databases on the server of ``dsn``, or on an embedded one that starts and ends with the block.

    ``prepare`` gets the DSN of the template once, to add tables or rows that every test needs. The role of ``dsn`` must
    be allowed to create databases. They are named ``dibs_test_…``.
    """
    if dsn is None:
        with (
            Server.temporary(settings=SETTINGS, in_memory=True) as server,
            _template(server.dsn("postgres"), prepare) as template,
        ):
            yield Databases(server.dsn("postgres"), template, by_files=True)
    else:
        with _template(dsn, prepare) as template:
            yield Databases(dsn, template)


@contextmanager
def _template(dsn: str, prepare: Callable[[str], object] | None) -> Iterator[str]:
    name = _name()
    create_database(dsn, name)
    try:
        made = at_database(dsn, name)
        migrate(made)
        Clock(made).install()
        if prepare is not None:
            prepare(made)
        yield name
    finally:
        drop_database(dsn, name)


def _name() -> str:
    # The name is unique among processes, and among machines that share the server.
    return f"dibs_test_{os.getpid()}_{secrets.token_hex(4)}"
