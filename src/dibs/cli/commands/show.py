"""``dibs show``: everything known of one job."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec.structs import asdict

from dibs.cli.command import Command
from dibs.cli.output import first_line, read_time, shown
from dibs.cli.session import Session, pass_session
from dibs.cli.types import JOB_ID
from dibs.errors import UnknownJob
from dibs.progress import spoken

if TYPE_CHECKING:
    from uuid import UUID

    from dibs.cli.output import Output
    from dibs.cli.session import IdGiven
    from dibs.progress import Status

ATTEMPTS = (">run", "outcome", "?claimed", "ended", "?>worker", "result or reason")
TIMES = ("enqueued_at", "due_at", "expire_at", "deadline", "claimed_at", "lease_until", "ended_at")
APART = ("attempts", "payload", "body", "headers", "policy", "progress", "priority", "max_attempts")
KIN = ("parent", "follow_ups")


@click.command(cls=Command)
@click.argument("id", type=JOB_ID)
@click.option("--watch", is_flag=True, help="Follow it until it has ended: a line for each change.")
@pass_session
def show(session: Session, id: IdGiven, watch: bool) -> None:
    """Show a job with its payload and its attempts, or watch it."""
    with session.client() as client:
        whole = session.job_id(client, id)
        if watch:
            for status in client.watch(whole):
                _follow(session, status)
            return
        known = client.show(whole)
    if known is None:
        raise no_such_job(whole)
    if session.as_json:
        session.output.json(known)
    else:
        _print(session.output, known)


def _follow(session: Session, status: Status) -> None:
    if session.as_json:
        session.output.json(asdict(status))
        return
    attempt = f"attempt {status.attempts} of {status.max_attempts}" if status.attempts else ""
    details = [spoken(status.progress), attempt, status.reason]
    session.output.say(f"{shown(datetime.now(UTC))} {status.state:10} " + ", ".join(filter(None, details)))


def no_such_job(id: UUID) -> UnknownJob:
    """Return the error for an id without a job."""
    return UnknownJob(
        f"there is no job {id}", hint="it was never committed, or its retention is over and it was pruned"
    )


def _print(output: Output, known: dict[str, Any]) -> None:
    kin = {name: _relatives(known[name]) for name in KIN}
    rest = {name: value for name, value in known.items() if name not in APART and value != []}
    plain = {name: read_time(value) if name in TIMES else value for name, value in rest.items()} | kin
    apart = {name: _json(known[name]) for name in APART[1:] if known[name] != {}}
    output.facts((name, value) for name, value in {**plain, **apart}.items() if value is not None)
    if known["attempts"]:
        output.say("")
        output.table(ATTEMPTS, (_attempt(attempt) for attempt in known["attempts"]))


def _relatives(jobs: dict[str, Any] | list[dict[str, Any]] | None) -> str | None:
    """Format the job that it follows, or those that follow it."""
    these = jobs if isinstance(jobs, list) else [jobs] if jobs else []
    return ", ".join(f"{j['id']} ({j['kind']}, {j['state']})" for j in these) or None


def _attempt(a: dict[str, Any]) -> tuple[Any, ...]:
    said = first_line(a["error"]) or _json(a["result"])
    return (a["run"], a["outcome"], read_time(a["claimed_at"]), read_time(a["ended_at"]), a["worker"], said)


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
