"""What one invocation knows: how to speak, and which database to speak to."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dibs import Client
from dibs.cli.output import Output
from dibs.client.find import start_embedded
from dibs.config import configured_dsn
from dibs.db.dsn import has_password
from dibs.db.schema import migrate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")

PATIENCE = 5.0
"""How long a command waits for a database that is away, in seconds."""


class Session:
    """The options every command has, and what follows from them."""

    def __init__(self) -> None:
        self.dsn: str | None = None
        self.debug = False
        self.output = Output()
        os.environ.setdefault("PGCONNECT_TIMEOUT", f"{PATIENCE:.0f}")
        logging.getLogger("psycopg").setLevel(logging.CRITICAL)

    @property
    def as_json(self) -> bool:
        """Whether a program reads the answer."""
        return self.output.as_json

    def warn(self) -> None:
        """Say so if a password is on the command line."""
        if self.dsn is not None and has_password(self.dsn):
            text = "every user of this machine can see the password in --dsn, in its list of processes; set DIBS_DSN"
            self.output.note(text, style="yellow")

    def find(self, *, install: bool = True) -> str:
        """The DSN to use: given, from the environment, or that of the embedded PostgreSQL, which is started."""
        if found := configured_dsn(self.dsn):
            return found
        server = start_embedded()
        if install:
            migrate(server.dsn())
        return server.dsn()

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A client of that database, for as long as the block lasts."""
        with Client(self.find(), patience=PATIENCE, pool_size=2) as client:
            yield client

    def show(
        self,
        found: Sequence[T],
        columns: Sequence[str],
        row: Callable[[T], Sequence[Any]],
        *,
        empty: str,
        as_json: Callable[[T], Any] = lambda one: one,
    ) -> None:
        """List what was found: as JSON or as a table; without anything to list, say ``empty``."""
        if self.as_json:
            self.output.json([as_json(one) for one in found])
        elif found:
            self.output.table(columns, map(row, found))
        else:
            self.output.note(empty)


pass_session = click.make_pass_decorator(Session, ensure=True)
