"""Commands for the jobs in a queue: pause, resume, purge, estimate the end of the backlog, list holders of shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict

from dibs.cli.bulk import change
from dibs.cli.commands.queues.group import queues
from dibs.cli.session import Session, pass_session
from dibs.cli.types import DURATION, QUEUE

if TYPE_CHECKING:
    from datetime import timedelta

    from dibs.cli.exits import Exit
    from dibs.info import Resumed
    from dibs.shards import Shard

SHARDS = ("queue", ">shard", "claim from", ">worker", "name", "since", "until", "claimable")


@queues.command(short_help="Stop handing out a queue's jobs.")
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


@queues.command(short_help="Hand out a queue's jobs again.")
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
        session.output.say(f"queue {queue} {_in_words(resumed)}")


def _in_words(resumed: Resumed) -> str:
    words = "is resumed" if resumed.paused_at else "was not paused"
    if not resumed.late:
        return words
    end = (
        f"{resumed.extended} of them live on" if resumed.extended else "they expire now; --extend would have kept them"
    )
    return f"{words}; {resumed.late} jobs are past their time: {end}"


@queues.command(short_help="Delete a queue's waiting jobs; a dry run unless --yes.")
@click.argument("queue", type=QUEUE)
@click.option("-n", "--max", "most", type=click.IntRange(min=1), help="At most this many.")
@click.option("-y", "--yes", is_flag=True, help="Do it. Without this nothing is changed.")
@pass_session
def purge(session: Session, queue: str, most: int | None, yes: bool) -> Exit:
    """Delete the jobs of a queue that wait, as if they had never been enqueued. Without --yes it only counts them.

    Jobs that have ended stay: dibs delete is for those.
    """
    with session.client() as client:
        return change(
            session,
            "purge",
            "deleted",
            lambda steps: client.queues.purge(queue, **steps),
            yes,
            most=most,
        )


@queues.command("drain-estimate")
@click.argument("name", type=QUEUE)
@click.option("--span", type=DURATION, default="5m", show_default=True, help="How far back to look.")
@pass_session
def drain_estimate(session: Session, name: str, span: timedelta) -> None:
    """Estimate when a queue's backlog will be gone."""
    with session.client() as client:
        estimate = client.queues.drain_estimate(name, span)
    if session.as_json:
        session.output.json(estimate)
    else:
        session.output.facts(asdict(estimate).items())


@queues.command(short_help="Show who holds exclusive queues and shards.")
@click.argument("queue", type=QUEUE, required=False)
@pass_session
def shards(session: Session, queue: str | None) -> None:
    """Show every exclusive queue and every shard, with the worker that holds it."""
    with session.client() as client:
        found = client.queues.shards(queue)
    empty = "no queue is exclusive or has shards; make one with: dibs queues set NAME --shards 8"
    session.show(found, SHARDS, _shard, empty=empty)


def _shard(s: Shard) -> tuple[Any, ...]:
    holder = (s.worker, s.worker_name, s.taken_at, s.held_until) if s.held else (None, None, None, None)
    return (s.queue, s.shard, s.name, *holder, s.claimable)
