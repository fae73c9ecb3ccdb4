"""Databases for tests: each a copy of a template that has dibs in it, on a server given or brought along."""

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
    """Makes databases that are copies of one template; it and they are gone when the session is."""

    def __init__(self, dsn: str, template: str, *, by_files: bool = False) -> None:
        self.dsn = dsn
        self.template = template
        self._by_files = by_files

    @contextmanager
    def fresh(self) -> Iterator[str]:
        """A new database with dibs in it; its DSN."""
        name = _name()
        create_database(self.dsn, name, template=self.template, by_files=self._by_files)
        try:
            yield at_database(self.dsn, name)
        finally:
            drop_database(self.dsn, name)


@contextmanager
def databases(dsn: str | None = None, prepare: Callable[[str], object] | None = None) -> Iterator[Databases]:
    """Databases on the server of ``dsn``, or on an embedded one that starts and ends with the block.

    ``prepare`` gets the DSN of the template once, to put in what every test wants to find: your own tables, say.
    The role of ``dsn`` must be allowed to create databases. Those made are named ``dibs_test_…``.
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
    # Neither another process, nor another machine at the same server, makes the same one.
    return f"dibs_test_{os.getpid()}_{secrets.token_hex(4)}"
