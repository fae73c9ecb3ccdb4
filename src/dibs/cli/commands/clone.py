"""``dibs clone``: enqueue a copy of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dibs.cli.command import Command
from dibs.cli.session import Session, pass_session
from dibs.cli.types import JOB_ID

if TYPE_CHECKING:
    from dibs.cli.session import IdGiven


@click.command(cls=Command)
@click.argument("id", type=JOB_ID)
@pass_session
def clone(session: Session, id: IdGiven) -> None:
    """Enqueue a job once more, due now: the same payload, headers and options, without its dedup key."""
    with session.client() as client:
        made = client.clone(session.job_id(client, id))
    if session.as_json:
        session.output.json({"id": made})
    else:
        session.output.say(str(made))
