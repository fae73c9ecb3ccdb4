"""``dibs sql``: the install as a script for psql."""

from __future__ import annotations

import click

from dibs.cli.command import Command
from dibs.cli.session import Session, pass_session
from dibs.sql import install_script, latest_version


@click.command(cls=Command)
@pass_session
def sql(session: Session) -> None:
    """Print the script that dibs migrate runs: dibs sql | psql -v ON_ERROR_STOP=1."""
    script = install_script()
    if session.as_json:
        session.output.json({"version": latest_version(), "script": script})
    else:
        click.echo(script)
