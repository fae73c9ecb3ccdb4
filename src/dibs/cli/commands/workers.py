"""``dibs workers``: who is alive."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Command
from dibs.cli.session import Session, pass_session
from dibs.cluster.member import BEAT
from dibs.db import calls
from dibs.units import spoken

if TYPE_CHECKING:
    from dibs.info import WorkerInfo

SILENT = timedelta(seconds=3 * BEAT)
"""A worker that was not seen for this long has died, hangs or lost its database."""
COLUMNS = (">number", "name", "?host", "?>pid", "?started", "seen", ">running", "queues")


@click.command(cls=Command)
@click.option("--all", "everyone", is_flag=True, help="Also those that have not been seen for a while.")
@pass_session
def workers(session: Session, everyone: bool) -> None:
    """List the worker processes and what each of them runs."""
    with session.client() as client:
        registered = client.workers()
        since = client._run(calls.schema.now()) - SILENT
    found = [worker for worker in registered if everyone or worker.seen_at > since]
    session.show(found, COLUMNS, _row, empty="no worker is alive; start one with: dibs worker MODULE:APP")
    if silent := len(registered) - len(found):
        session.output.note(f"{silent} more have not been seen for {spoken(SILENT)}: --all")


def _row(w: WorkerInfo) -> tuple[Any, ...]:
    facts = w.facts
    queues = ", ".join(facts.get("queues", ()))
    return w.id, w.name, facts.get("host"), facts.get("pid"), w.started_at, w.seen_at, w.running, queues
