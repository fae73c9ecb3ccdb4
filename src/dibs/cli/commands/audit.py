"""``dibs audit``: the changes by operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from dibs.cli.command import Command, limit_option
from dibs.cli.session import Session, pass_session
from dibs.cli.types import DURATION
from dibs.db import calls

if TYPE_CHECKING:
    from datetime import timedelta

    from dibs.types import Audit

COLUMNS = (">operation", "at", "who", "verb", "?queue", ">jobs", "message")


@click.command(cls=Command)
@limit_option
@click.option("--before", type=int, help="Only those before this number, to go on from a list's last one.")
@click.option("--keep", type=DURATION, help="Change how long it is kept, instead of showing it; for the owner of dibs.")
@pass_session
def audit(session: Session, limit: int, before: int | None, keep: timedelta | None) -> None:
    """Show who changed what, newest first: every change that an operator made."""
    with session.client() as client:
        if keep is not None:
            client._run(calls.operate.set_audit_retention(keep))
            session.say_kept("changes", keep)
            return
        found = client.audit(limit=limit, before=before)
    session.show(found, COLUMNS, _row, empty="nothing was changed")
    if len(found) == limit:
        session.output.note(f"there may be more: --before {found[-1].operation}")


def _row(a: Audit) -> tuple[Any, ...]:
    who = f"{a.actor} ({a.role})" if a.actor else a.role
    details = {**(a.filter or {}), **(a.detail or {}), **({"job": str(a.job_id)} if a.job_id else {})}
    return a.operation, a.at, who, a.verb, a.queue, a.jobs, msgspec.json.encode(details).decode() if details else None
