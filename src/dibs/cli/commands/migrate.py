"""``dibs migrate``: bring the schema to this release."""

from __future__ import annotations

import click

from dibs.cli.command import Command
from dibs.cli.install import install, install_options
from dibs.cli.session import Session, pass_session


@click.command(cls=Command)
@install_options
@click.option("--repair", is_flag=True, help="Install the functions, views and grants again, even if nothing is new.")
@pass_session
def migrate(session: Session, lock_timeout: float, dry_run: bool, repair: bool) -> None:
    """Bring a database's schema to this release; the same as init."""
    install(session, lock_timeout, dry_run=dry_run, repair=repair)
