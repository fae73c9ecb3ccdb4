"""``dibs why``: what a job waits for, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dibs.cli.command import Command
from dibs.cli.commands.show import no_such_job
from dibs.cli.session import Session, pass_session
from dibs.cli.types import JOB_ID
from dibs.states import State

if TYPE_CHECKING:
    from dibs.cli.session import IdGiven


@click.command(cls=Command)
@click.argument("id", type=JOB_ID)
@pass_session
def why(session: Session, id: IdGiven) -> None:
    """Explain what a job waits for, who holds it, or how it ended."""
    with session.client() as client:
        whole = session.job_id(client, id)
        state = client.status(whole).state
        reason = client.why(whole)
    if state is State.UNKNOWN:
        raise no_such_job(whole)
    if session.as_json:
        session.output.json({"id": whole, "state": state, "why": reason})
    else:
        session.output.say(reason)
