"""``dibs why``: what a job waits for, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dibs.cli.command import Command
from dibs.cli.commands.job import no_such_job
from dibs.cli.session import Session, pass_session
from dibs.cli.types import JOB_ID
from dibs.states import State

if TYPE_CHECKING:
    from uuid import UUID


@click.command(cls=Command)
@click.argument("id", type=JOB_ID)
@pass_session
def why(session: Session, id: UUID) -> None:
    """Explain what a job waits for, who holds it, or how it ended."""
    with session.client() as client:
        state = client.state(id)
        told = client.why(id)
    if state is State.UNKNOWN:
        raise no_such_job(id)
    if session.as_json:
        session.output.json({"id": id, "state": state, "why": told})
    else:
        session.output.say(told)
