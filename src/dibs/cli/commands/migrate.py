"""``dibs migrate``: install dibs, or bring its schema to this release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Command
from dibs.cli.session import Session, pass_session
from dibs.cli.types import DURATION
from dibs.db.schema import Migrated
from dibs.db.schema import migrate as run_migrations
from dibs.policy import seconds

if TYPE_CHECKING:
    from datetime import timedelta

    from dibs.cli.output import Output


@click.command(cls=Command)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option(
    "--lock-timeout",
    type=DURATION,
    default="10s",
    show_default=True,
    help="How long to try to get the locks before giving up.",
)
@click.option("--repair", is_flag=True, help="Install the functions, views and grants again, even if nothing is new.")
@pass_session
def migrate(session: Session, dry_run: bool, lock_timeout: timedelta, repair: bool) -> None:
    """Install dibs in a database, or bring it up to date; safe to run again."""
    dsn = session.find(install=False)
    waiting = Waiting(session.output)
    done = run_migrations(dsn, lock_timeout=seconds(lock_timeout), dry_run=dry_run, repair=repair, waiting=waiting)
    if session.as_json:
        session.output.json(_as_json(done, dry_run))
    else:
        _explain(session.output, done, dry_run)


class Waiting:
    """Says what a migration waits for, whenever that changes."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._said = ""

    def __call__(self, holder: str) -> None:
        """Print the holder of the lock, unless it was printed before."""
        if holder.partition(" (")[0] != self._said:
            self._said = holder.partition(" (")[0]
            self._output.note(f"waiting for a lock: {holder}", "yellow")


def _as_json(done: Migrated, dry_run: bool) -> dict[str, Any]:
    return {
        "before": done.before,
        "after": done.after,
        "applied": done.applied,
        "code_changed": done.code_changed,
        "notices": done.notices,
        "dry_run": dry_run,
    }


def _explain(output: Output, done: Migrated, dry_run: bool) -> None:
    if not done.changed:
        output.say(f"dibs is installed and up to date (version {done.after}); nothing to do")
        return
    verb = "would apply" if dry_run else "applied"
    for name in done.applied:
        output.say(f"{verb} migration {name}")
    if done.code_changed:
        output.say(f"{verb} functions, views and grants")
    for notice in done.notices:
        output.note(notice, "yellow")
    if dry_run:
        output.say("nothing was changed; run it without --dry-run")
    elif done.before is None:
        output.say(f"dibs is installed (version {done.after}) in the schema dibs", "green")
        output.note("next: dibs enqueue mail welcome '{\"user\": 42}' · dibs queues")
    elif done.before == done.after:
        output.say(f"dibs is at version {done.after}", "green")
    else:
        output.say(f"dibs is at version {done.after}; it was at {done.before}", "green")
