"""``dibs resume``: hand out a queue's jobs again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dibs.cli.command import Command
from dibs.cli.session import Session, pass_session
from dibs.cli.types import DURATION, QUEUE

if TYPE_CHECKING:
    from datetime import timedelta

    from dibs.info import Resumed


@click.command(cls=Command, short_help="Hand out a queue's jobs again.")
@click.argument("queue", type=QUEUE)
@click.option("--extend", type=DURATION, help="Let jobs that are past their time live that much longer.")
@pass_session
def resume(session: Session, queue: str, extend: timedelta | None) -> None:
    """Hand out a queue's jobs again, and say how many are past their time."""
    with session.client() as client:
        resumed = client.queues.resume(queue, extend=extend)
    if session.as_json:
        session.output.json({"queue": queue, "paused_at": resumed.paused_at, "late": resumed.late,
                             "extended": resumed.extended})  # fmt: skip
    else:
        session.output.say(f"queue {queue} {_told(resumed)}")


def _told(resumed: Resumed) -> str:
    told = "is resumed" if resumed.paused_at else "was not paused"
    if not resumed.late:
        return told
    end = (
        f"{resumed.extended} of them live on" if resumed.extended else "they expire now; --extend would have kept them"
    )
    return f"{told}; {resumed.late} jobs are past their time: {end}"
