"""``dibs version``: what is installed here."""

from __future__ import annotations

import platform

import click

from dibs import __version__
from dibs.cli.command import Command
from dibs.cli.session import Session, pass_session
from dibs.sql import latest_version


@click.command(cls=Command)
@pass_session
def version(session: Session) -> None:
    """Say which dibs this is; asks no database."""
    facts = {"dibs": __version__, "schema": latest_version(), "python": platform.python_version()}
    if session.as_json:
        session.output.json(facts)
    else:
        session.output.say(f"dibs {__version__} (schema version {facts['schema']}, Python {facts['python']})")
