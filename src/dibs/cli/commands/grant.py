"""``dibs grant``: give a login its role, its queues and its functions."""

from __future__ import annotations

import click

from dibs.cli.command import Command
from dibs.cli.session import Session, pass_session
from dibs.db.grants import ROLES, Asked
from dibs.db.grants import grant as give


@click.command(cls=Command)
@click.argument("role", type=click.Choice(ROLES))
@click.argument("login")
@click.option("--queue", "queues", multiple=True, help="Confine it to this queue; more than once for several.")
@click.option("--function", "functions", multiple=True, help="Only this allowed function; a worker gets all.")
@click.option("--create", is_flag=True, help="Create the login first, without a password.")
@click.option("--dry-run", is_flag=True, help="Change nothing, and show what would be run.")
@pass_session
def grant(
    session: Session,
    role: str,
    login: str,
    queues: tuple[str, ...],
    functions: tuple[str, ...],
    create: bool,
    dry_run: bool,
) -> None:
    """Give LOGIN the role producer, worker, observer or admin; or that of an action of the dashboard.

    A worker also gets EXECUTE on the functions of the allow-list. With --queue it can use those queues and no others.
    """
    asked = Asked(role, login, queues, functions, create)
    done = give(session.find(), asked, dry_run=dry_run)
    if session.as_json:
        session.output.json({"dry_run": dry_run, "statements": done})
        return
    for statement in done:
        session.output.say(f"{statement};")
    if dry_run:
        session.output.note("nothing was changed")
