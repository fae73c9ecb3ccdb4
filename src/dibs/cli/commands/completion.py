"""``dibs completion``: let the shell complete commands, options, queues, kinds, ids and schedules."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from dibs.cli.command import Command
from dibs.cli.session import Session, pass_session


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@pass_session
def completion(session: Session, shell: str) -> None:
    """Print a script that lets your shell complete commands, options, queues, kinds, ids and schedules.

    Names are looked up in the database of DIBS_DSN.
    """
    found = get_completion_class(shell)
    assert found is not None
    script = found(click.get_current_context().find_root().command, {}, "dibs", "_DIBS_COMPLETE").source()
    if session.as_json:
        session.output.json({"shell": shell, "script": script})
    else:
        click.echo(script)
