"""``dibs shards``: who pulls from the queues that one worker at a time pulls from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Command
from dibs.cli.session import Session, pass_session
from dibs.cli.types import QUEUE

if TYPE_CHECKING:
    from dibs.shards import Shard

COLUMNS = ("queue", ">shard", "claim from", ">worker", "name", "since", "until", "claimable")


@click.command(cls=Command, short_help="Show who holds exclusive queues and shards.")
@click.argument("queue", type=QUEUE, required=False)
@pass_session
def shards(session: Session, queue: str | None) -> None:
    """Show every exclusive queue and every shard, with the worker that holds it."""
    with session.client() as client:
        found = client.queues.shards(queue)
    empty = "no queue is exclusive or has shards; make one with: dibs queues set NAME --shards 8"
    session.show(found, COLUMNS, _row, empty=empty)


def _row(s: Shard) -> tuple[Any, ...]:
    holder = (s.worker, s.worker_name, s.taken_at, s.held_until) if s.held else (None, None, None, None)
    return (s.queue, s.shard, s.name, *holder, s.claimable)
