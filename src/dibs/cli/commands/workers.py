"""``dibs workers``: who is alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Command
from dibs.cli.session import Session, pass_session

if TYPE_CHECKING:
    from dibs.info import WorkerInfo

COLUMNS = (">number", "name", "host", ">pid", "started", "seen", ">running", "queues")


@click.command(cls=Command)
@pass_session
def workers(session: Session) -> None:
    """List the worker processes and what each of them runs."""
    with session.client() as client:
        found = client.workers()
    session.show(found, COLUMNS, _row, empty="no worker is registered; start one with: dibs worker MODULE:APP")


def _row(w: WorkerInfo) -> tuple[Any, ...]:
    facts = w.facts
    queues = ", ".join(facts.get("queues", ()))
    return w.id, w.name, facts.get("host"), facts.get("pid"), w.started_at, w.seen_at, w.running, queues
