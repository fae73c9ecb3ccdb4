"""``dibs embedded``: the private PostgreSQL."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Group
from dibs.cli.exits import Exit
from dibs.cli.session import Session, pass_session
from dibs.db.schema import migrate
from dibs.embedded import Server, ServerStatus, ensure_running

if TYPE_CHECKING:
    from dibs.cli.output import Output


@click.group(cls=Group)
def embedded() -> None:
    """Start, stop or look at the private PostgreSQL for development."""


@embedded.command()
@pass_session
def start(session: Session) -> None:
    """Start it, make its data folder the first time, and install dibs in it."""
    server = ensure_running()
    migrate(server.dsn())
    _report(session.output, server.status())


@embedded.command()
@pass_session
def stop(session: Session) -> None:
    """Stop it; the data stays."""
    server = Server()
    ran = server.status().running
    server.stop()
    if session.as_json:
        session.output.json({"running": False, "was_running": ran})
    else:
        session.output.say("stopped" if ran else "it was not running")


@embedded.command()
@pass_session
def status(session: Session) -> Exit:
    """Say whether it runs, where its data lies and how to connect; exit code 1 if it does not run."""
    found = Server().status()
    _report(session.output, found)
    return Exit.OK if found.running else Exit.FAILED


@embedded.command(shared=False, context_settings={"ignore_unknown_options": True})
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def psql(args: tuple[str, ...]) -> int:
    """Open psql on it; ARGS are psql's."""
    return ensure_running().psql(*args)


def _report(output: Output, status: ServerStatus) -> None:
    facts: dict[str, Any] = {name: _plain(value) for name, value in asdict(status).items() if name != "socket_dir"}
    if output.as_json:
        output.json(facts)
    else:
        output.facts(facts.items())


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int) or hasattr(value, "isoformat") or value is None else str(value)
