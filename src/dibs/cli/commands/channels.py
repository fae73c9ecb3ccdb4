"""``dibs channels``: deliveries, supervised processes, and the error log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Listing, limit_option
from dibs.cli.filters import moment
from dibs.cli.output import first_line
from dibs.cli.session import Session, pass_session
from dibs.cli.types import DURATION, JOB_ID, PAST
from dibs.db import calls

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from dibs.cli.session import IdGiven

SENT = ("job", "kind", "provider", ">sends", ">interrupted", "sent", "accepted", "refused", "recorded", "step")
SUPERVISED = ("process", "queue", "state", "next look", "job")
ERRORS = (">number", "at", "source", "?queue", "?kind", "?job", "message")
LISTED = 20


@click.group(cls=Listing)
@pass_session
def channels(session: Session) -> None:
    """Show what channels sent, newest first; supervised processes, and the log of errors."""
    _show(session, interrupted=False, limit=LISTED)


@channels.command()
@click.option("--interrupted", is_flag=True, help="Only messages that may have gone out twice.")
@limit_option
@pass_session
def deliveries(session: Session, interrupted: bool, limit: int) -> None:
    """Show what channels sent, newest first, and totals."""
    _show(session, interrupted=interrupted, limit=limit)


def _show(session: Session, *, interrupted: bool, limit: int) -> None:
    with session.client() as client:
        found = client.channels.deliveries(interrupted=interrupted, limit=limit)
        totals = client._run(calls.channels.delivery_totals())
    if session.as_json:
        session.output.json({"totals": totals, "deliveries": found})
        return
    if found:
        session.output.table(SENT, (tuple(row.values()) for row in found))
    session.output.note(", ".join(f"{count} {name}" for name, count in totals.items()))


@channels.command(short_help="List the business processes under a supervisor.")
@limit_option
@pass_session
def supervised(session: Session, limit: int) -> None:
    """List the business processes under a supervisor, and when each is looked at next."""
    with session.client() as client:
        found = client.channels.supervised(limit=limit)
    session.show(found, SUPERVISED, _process, empty="no process is under a supervisor")


def _process(p: dict[str, Any]) -> tuple[Any, ...]:
    return p["name"], p["queue"], p["state"], p["due_at"], p["job_id"]


@channels.command("error-log", short_help="Show the log of operational errors, newest first.")
@click.option("--job", type=JOB_ID, help="Only about this job.")
@click.option("--source", help="Only of this source: a function, a channel, …")
@click.option("--since", type=PAST, help="Only since this time, or this long ago: 1h.")
@click.option("--before", type=int, help="Only those before this number, to go on from a list's last one.")
@limit_option
@click.option("--keep", type=DURATION, help="Change how long the log is kept, instead of showing it.")
@pass_session
def error_log(session: Session, /, keep: timedelta | None, **given: Any) -> None:
    """Show the log of operational errors, newest first.

    The failures of jobs are not in it: dibs failures groups those.
    """
    if keep is None:
        _list_errors(session, **given)
        return
    with session.client() as client:
        client._run(calls.channels.set_error_retention(keep))
    session.say_kept("errors", keep)


def _list_errors(
    session: Session, *, job: IdGiven | None, since: datetime | timedelta | None, limit: int, **given: Any
) -> None:
    with session.client() as client:
        about = None if job is None else session.job_id(client, job)
        found = client.channels.error_log(job=about, since=moment(client, since), limit=limit, **given)
    session.show(found, ERRORS, _error, empty="no errors")
    if len(found) == limit:
        session.output.note(f"there may be more: --before {found[-1]['id']}")


def _error(e: dict[str, Any]) -> tuple[Any, ...]:
    return e["id"], e["at"], e["source"], e["queue"], e["kind"], e["job_id"], first_line(e["message"])
