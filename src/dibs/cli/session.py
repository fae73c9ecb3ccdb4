"""The state of one invocation: its output and its database."""

from __future__ import annotations

import getpass
import logging
import os
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click

import dibs
from dibs.config import configured_dsn
from dibs.errors import DibsError, InvalidArgument, UnknownJob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from datetime import timedelta

    from dibs.cli.output import Output
    from dibs.db.calls import Call

T = TypeVar("T")

MOST_NAMED = 3
"""The number of jobs that are named when an id is ambiguous."""

PATIENCE = 5.0
"""Seconds that a command waits for a database that is away."""


@dataclass(frozen=True)
class IdPrefix:
    """The beginning of a job's id."""

    text: str

    @property
    def bounds(self) -> tuple[UUID, UUID]:
        """The first and the last id that begins so."""
        digits = self.text.replace("-", "")
        return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))


IdGiven = UUID | IdPrefix
"""A job's id on a command line: complete, or its beginning."""


class Session:
    """The shared options, and the output and database that follow from them.

    Modules for the terminal and the database are imported on first use: a list of commands needs neither.
    """

    def __init__(self) -> None:
        self.dsn: str | None = None
        self.debug = False
        os.environ.setdefault("PGCONNECT_TIMEOUT", f"{PATIENCE:.0f}")
        logging.getLogger("psycopg").setLevel(logging.CRITICAL)

    @cached_property
    def output(self) -> Output:
        """The output of the command."""
        from dibs.cli.output import Output

        return Output()

    @property
    def as_json(self) -> bool:
        """True if a program reads the answer."""
        return self.output.as_json

    def warn(self) -> None:
        """Warn if a password is on the command line."""
        if self.dsn is None:
            return
        from dibs.db.dsn import has_password

        if has_password(self.dsn):
            text = "every user of this machine can see the password in --dsn, in its list of processes; set DIBS_DSN"
            self.output.note(text, style="yellow")

    def find(self, *, install: bool = True) -> str:
        """Return the DSN: given, of the environment, or of the embedded PostgreSQL, which is started."""
        if found := configured_dsn(self.dsn):
            return found
        from dibs.client.find import start_embedded
        from dibs.db.schema import migrate

        server = start_embedded()
        if install:
            migrate(server.dsn())
        return server.dsn()

    @contextmanager
    def client(self) -> Iterator[dibs.Client]:
        """Yield a client of that database."""
        with dibs.Client(self.find(), patience=PATIENCE, pool_size=2) as client, _acting():
            yield client

    def job_id(self, client: dibs.Client, given: IdGiven) -> UUID:
        """Return the job that an id, or the beginning of one, stands for."""
        if isinstance(given, UUID):
            return given
        from dibs.db import calls

        found = client._run(calls.names.ids_between(*given.bounds, MOST_NAMED + 1))
        if len(found) == 1:
            return found[0]
        if not found:
            raise UnknownJob(f"there is no job whose id begins with {given.text}")
        more = ", …" if len(found) > MOST_NAMED else ""
        raise InvalidArgument(
            f"several jobs have an id that begins with {given.text}",
            hint=f"give more of it: {', '.join(map(str, found[:MOST_NAMED]))}{more}",
        )

    def complete(self, call: Call[list[str]]) -> list[str]:
        """Return the completions of a word; an empty list if the database does not answer at once."""
        with suppress(DibsError):
            if dsn := configured_dsn(self.dsn):
                with dibs.Client(dsn, patience=1.0, pool_size=1) as client:
                    return client._run(call)
        return []

    def say_kept(self, what: str, keep: timedelta) -> None:
        """Print the new retention."""
        if self.as_json:
            self.output.json({"keep": keep})
        else:
            self.output.say(f"{what} older than that will be deleted by the upkeep")

    def show(
        self,
        found: Sequence[T],
        columns: Sequence[str],
        row: Callable[[T], Sequence[Any]],
        *,
        empty: str,
        as_json: Callable[[T], Any] = lambda one: one,
    ) -> None:
        """List objects, as JSON or as a table; without any, print ``empty``."""
        if self.as_json:
            self.output.json([as_json(one) for one in found])
        elif found:
            self.output.table(columns, map(row, found))
        else:
            self.output.note(empty)


def _acting() -> AbstractContextManager[None]:
    """Name the user of this machine to the audit."""
    try:
        return dibs.acting_as(getpass.getuser())
    except (KeyError, OSError):
        return nullcontext()


pass_session = click.make_pass_decorator(Session, ensure=True)
