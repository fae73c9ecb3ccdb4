"""``dibs errors``: the log of operational errors, and failures that are alike."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Group, limit_option
from dibs.cli.output import first_line
from dibs.cli.session import Session, pass_session
from dibs.cli.types import DURATION, JOB_ID, KIND, PAST, QUEUE
from dibs.db import calls

if TYPE_CHECKING:
    from dibs import Client
    from dibs.cli.session import IdGiven
    from dibs.types import FailureGroup

COLUMNS = (">number", "at", "source", "?queue", "?kind", "?job", "message")
TOP = ("fingerprint", ">failures", "last", "?raised in", "?kinds", "?queues", "?first", "message")


@click.group(cls=Group, invoke_without_command=True)
@click.option("--job", type=JOB_ID, help="Only about this job.")
@click.option("--source", help="Only of this source: a function, a channel, …")
@click.option("--since", type=PAST, help="Only since this time, or this long ago: 1h.")
@click.option("--before", type=int, help="Only those before this number, to go on from a list's last one.")
@limit_option
@click.option("--keep", type=DURATION, help="Change how long the log is kept, instead of showing it.")
@click.pass_context
def errors(ctx: click.Context, /, **given: Any) -> None:
    """Show the log of errors, newest first; or failures that are alike.

    dibs errors top has a line for failures with the same exception, message and place in your code.
    """
    if ctx.invoked_subcommand is None:
        session = ctx.ensure_object(Session)
        session.warn()
        (_keep if given["keep"] is not None else _list)(session, **given)


def _list(
    session: Session, *, job: IdGiven | None, since: datetime | timedelta | None, limit: int, keep: None, **given: Any
) -> None:
    del keep
    with session.client() as client:
        about = None if job is None else session.job_id(client, job)
        found = client.channels.error_log(job=about, since=_at(client, since), limit=limit, **given)
    session.show(found, COLUMNS, _row, empty="no errors")
    if len(found) == limit:
        session.output.note(f"there may be more: --before {found[-1]['id']}")


def _row(e: dict[str, Any]) -> tuple[Any, ...]:
    return e["id"], e["at"], e["source"], e["queue"], e["kind"], e["job_id"], first_line(e["message"])


def _keep(session: Session, *, keep: timedelta, **given: Any) -> None:
    del given
    with session.client() as client:
        client._run(calls.channels.set_error_retention(keep))
    session.say_kept("errors", keep)


@errors.command()
@click.option("-q", "--queue", type=QUEUE, help="Only of this queue.")
@click.option("-k", "--kind", type=KIND, help="Only of this kind.")
@click.option("--since", type=PAST, help="Only those that happened since this time, or this long ago: 1h.")
@limit_option
@pass_session
def top(session: Session, queue: str | None, kind: str | None, since: datetime | timedelta | None, limit: int) -> None:
    """Show failures that are alike, the latest first: their exception, message and where they were raised."""
    with session.client() as client:
        found = client.failures.list(queue=queue, kind=kind, since=_at(client, since), limit=limit)
    session.show(found, TOP, _group, empty="no failures; a worker or dibs maintain counts them every few seconds")
    if found:
        session.output.note(f"bring those of a group back: dibs retry --failure {found[0].fingerprint}")


def _group(g: FailureGroup) -> tuple[Any, ...]:
    kinds, queues = ", ".join(g.kinds), ", ".join(g.queues)
    told = ": ".join(filter(None, (g.error, g.message)))
    return g.fingerprint, g.failures, g.last_at, g.frame, kinds, queues, g.first_at, told


def _at(client: Client, value: datetime | timedelta | None) -> datetime | None:
    return client.now() - value if isinstance(value, timedelta) else value
