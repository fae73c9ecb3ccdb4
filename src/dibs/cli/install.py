"""What init and migrate share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from dibs.cli.types import DURATION
from dibs.db.schema import Migrated, migrate
from dibs.policy import Seconds, seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.cli.output import Output
    from dibs.cli.session import Session

F = TypeVar("F", bound="Callable[..., Any]")


def install_options(function: F) -> F:
    """The options of init and migrate."""
    function = click.option("--dry-run", is_flag=True, help="Only say what would be done.")(function)
    return click.option("--lock-timeout", type=DURATION, default="10s", show_default=True, metavar="DURATION",
                        help="How long to try to get the locks before giving up.")(function)  # fmt: skip


def install(session: Session, lock_timeout: Seconds, *, dry_run: bool, repair: bool = False) -> None:
    """Bring the database to this release, and say what was done."""
    dsn = session.find(install=False)
    waiting = Waiting(session.output)
    done = migrate(dsn, lock_timeout=seconds(lock_timeout), dry_run=dry_run, repair=repair, waiting=waiting)
    if session.as_json:
        session.output.json(_as_json(done, dry_run))
    else:
        _explain(session.output, done, dry_run)


class Waiting:
    """Says what a migration waits for, whenever it is something new."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._said = ""

    def __call__(self, holder: str) -> None:
        """Say it."""
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
