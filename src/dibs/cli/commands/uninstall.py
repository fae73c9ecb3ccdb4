"""``dibs uninstall``: take dibs out of a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from msgspec.structs import asdict

from dibs.cli.command import Command
from dibs.cli.session import Session, pass_session
from dibs.db.uninstall import MOST, Uninstalled
from dibs.db.uninstall import uninstall as drop

if TYPE_CHECKING:
    from dibs.cli.output import Output


@click.command(cls=Command)
@click.option("--roles", is_flag=True, help="Drop the roles of dibs, too, unless another database uses them.")
@click.option(
    "--force",
    is_flag=True,
    help="Also while workers run, or when a view or table outside the schema would be dropped with it.",
)
@click.option("--yes", is_flag=True, help="Do it. Without this nothing is changed.")
@pass_session
def uninstall(session: Session, roles: bool, force: bool, yes: bool) -> None:
    """Drop the schema dibs with all jobs and their history.

    Without --yes it only says what it would do.
    """
    done = drop(session.find(install=False), roles=roles, force=force, dry_run=not yes)
    if session.as_json:
        session.output.json({**asdict(done), "dry_run": not yes})
    else:
        _explain(session.output, done, dry_run=not yes)


def _explain(output: Output, done: Uninstalled, *, dry_run: bool) -> None:
    jobs = f"{done.jobs:,}" if done.jobs < MOST else f"{MOST:,} or more"
    verb = "would drop" if dry_run else "dropped"
    output.say(f"{verb} the schema dibs with {jobs} jobs and their history")
    for name in done.dependents:
        output.say(f"{verb} {name}, which depends on it", "yellow")
    for name in done.roles:
        output.say(f"{verb} the role {name}")
    for name in done.roles_kept:
        output.note(f"the role {name} is kept: something else needs it, or it is not yours to drop", "yellow")
    for name in done.workers:
        output.note(f"the worker {name} is running", "yellow")
    if dry_run:
        output.say("nothing was changed; run it with --yes")
