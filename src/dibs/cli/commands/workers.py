"""``dibs workers``: who is alive."""

from __future__ import annotations

import click

from dibs.cli.command import Command
from dibs.cli.session import Session, pass_session

COLUMNS = (">number", "name", "host", ">pid", "started", "seen", ">running", "queues")


@click.command(cls=Command)
@pass_session
def workers(session: Session) -> None:
    """List the worker processes, with when each was last seen and how many jobs it holds."""
    with session.client() as client:
        found = client.workers()
    if session.as_json:
        session.output.json(found)
    elif not found:
        session.output.note("no worker is registered; start one with: dibs worker MODULE:APP")
    else:
        session.output.table(
            COLUMNS,
            (
                (w["id"], w["name"], w["facts"].get("host"), w["facts"].get("pid"), w["started_at"], w["seen_at"],
                 w["running"], ", ".join(w["facts"].get("queues", ())))
                for w in found
            ),
        )  # fmt: skip
