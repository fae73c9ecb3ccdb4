"""``dibs cancel``: end waiting jobs, and ask the holders of running ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dibs.cli.command import Command
from dibs.cli.exits import Exit
from dibs.cli.session import Session, pass_session
from dibs.cli.types import JOB_ID

if TYPE_CHECKING:
    from uuid import UUID

MEANING = {
    "cancelled": "cancelled",
    "requested": "running: its worker was asked to stop",
    "ended": "had already ended",
    "unknown": "there is no such job",
}


@click.command(cls=Command)
@click.argument("ids", type=JOB_ID, nargs=-1, required=True, metavar="ID…")
@click.option("--reason", default="cancelled by request", show_default=True, help="Kept with the job.")
@pass_session
def cancel(session: Session, ids: tuple[UUID, ...], reason: str) -> Exit:
    """Cancel jobs. Exit code 4 if one does not exist, else 1 if one had already ended."""
    with session.client() as client:
        answers = client.cancel_many(ids, reason)
    if session.as_json:
        session.output.json(answers)
    else:
        for answer in answers:
            session.output.say(f"{answer.id} {MEANING[answer.answer]}")
    given = {answer.answer for answer in answers}
    return Exit.NOT_FOUND if "unknown" in given else Exit.FAILED if "ended" in given else Exit.OK
