"""``dibs pause``: stop handing out a queue's jobs."""

from __future__ import annotations

import click

from dibs.cli.command import Command
from dibs.cli.session import Session, pass_session
from dibs.cli.types import QUEUE


@click.command(cls=Command, short_help="Stop handing out a queue's jobs.")
@click.argument("queue", type=QUEUE)
@pass_session
def pause(session: Session, queue: str) -> None:
    """Stop handing out a queue's jobs; running ones finish, enqueues go on, nothing expires."""
    with session.client() as client:
        changed = client.queues.pause(queue)
    if session.as_json:
        session.output.json({"queue": queue, "paused": True, "changed": changed})
    else:
        session.output.say(f"queue {queue} is paused" if changed else f"queue {queue} was paused already")
