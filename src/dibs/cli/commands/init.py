"""``dibs init``: install the schema."""

from __future__ import annotations

import click

from dibs.cli.command import Command
from dibs.cli.install import install, install_options
from dibs.cli.session import Session, pass_session


@click.command(cls=Command)
@install_options
@pass_session
def init(session: Session, lock_timeout: float, dry_run: bool) -> None:
    """Install dibs in a database; safe to run again."""
    install(session, lock_timeout, dry_run=dry_run)
