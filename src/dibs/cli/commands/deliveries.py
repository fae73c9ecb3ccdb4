"""``dibs deliveries``: what channels sent, and what may have gone out twice."""

from __future__ import annotations

import click

from dibs.cli.command import Command
from dibs.cli.session import Session, pass_session
from dibs.db import calls

COLUMNS = ("job", "kind", "provider", ">sends", ">interrupted", "sent", "accepted", "refused", "recorded", "step")


@click.command(cls=Command)
@click.option("--interrupted", is_flag=True, help="Only messages that may have gone out twice.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, help="At most this many.")
@pass_session
def deliveries(session: Session, interrupted: bool, limit: int) -> None:
    """Show what channels sent, newest first, and totals."""
    with session.client() as client:
        found = client._run(calls.channels.deliveries(interrupted, limit))
        totals = client._run(calls.channels.delivery_totals())
    if session.as_json:
        session.output.json({"totals": totals, "deliveries": found})
        return
    if found:
        session.output.table(COLUMNS, (tuple(row.values()) for row in found))
    session.output.note(", ".join(f"{count} {name}" for name, count in totals.items()))
