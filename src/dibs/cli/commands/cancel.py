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
@click.argument("ids", type=JOB_ID, nargs=-1, metavar="[ID…]")
@click.option("--queue", help="With --dedup-key: the queue of the job.")
@click.option("--dedup-key", help="Cancel the job that has this key, instead of one by its id.")
@click.option("--reason", default="cancelled by request", show_default=True, help="Kept with the job.")
@pass_session
def cancel(
    session: Session, ids: tuple[UUID, ...], queue: str | None, dedup_key: str | None, reason: str
) -> Exit:  # fmt: skip
    """Cancel jobs, by id or by dedup key. Exits with 4 if one does not exist, or with 1 if one had already ended."""
    if (queue is None) != (dedup_key is None) or bool(ids) == (dedup_key is not None):
        raise click.UsageError("give ids, or --queue and --dedup-key")
    with session.client() as client:
        if queue is None or dedup_key is None:
            answers = client.cancel_many(ids, reason)
        elif (held := client.cancel_key(queue, dedup_key, reason)) is not None:
            answers = [held]
        else:
            session.output.note(f"no job of queue {queue} has this key")
            answers = []
    if session.as_json:
        session.output.json(answers)
    else:
        for answer in answers:
            session.output.say(f"{answer.id} {MEANING[answer.answer]}")
    given = {answer.answer for answer in answers}
    return Exit.NOT_FOUND if "unknown" in given or not given else Exit.FAILED if "ended" in given else Exit.OK
