"""``dibs groups``: the groups of a queue that run or wait; set what one may have, or drop that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from msgspec.structs import asdict

from dibs.cli.checks import refuse_unknown_queue
from dibs.cli.command import Listing
from dibs.cli.exits import Exit
from dibs.cli.session import Session, pass_session
from dibs.cli.types import COUNT_OR_NONE, DURATION_OR_NONE, QUEUE, SHARE_OR_NONE
from dibs.info import told

if TYPE_CHECKING:
    from dibs.info import GroupInfo

COLUMNS = ("queue", ">running", ">waiting", ">oldest due", "noisy", "?>weight", "?>concurrency", "?>rate", "group")
NAME = click.argument("name", metavar="GROUP")
EVERY = "*"
"""The name that stands for every group without its own settings."""


@click.group(cls=Listing)
@click.option("-q", "--queue", type=QUEUE, help="Only of this queue.")
@click.option("-n", "--limit", type=click.IntRange(1, 100), default=20, show_default=True,
              help="How many of each sort, of each queue.")  # fmt: skip
@pass_session
def groups(session: Session, queue: str | None, limit: int) -> None:
    """List the groups of queues that run or wait most, have waited longest, or are noisy.

    What is set for groups is among dibs limits.
    """
    with session.client() as client:
        names = [known.name for known in client.queues.list()] if queue is None else [queue]
        found = [(name, group) for name in names for group in client.groups.list(name, limit=limit)]
    empty = "no job of a group waits or runs"
    session.show(found, COLUMNS, _row, empty=empty, as_json=lambda one: {"queue": one[0], **asdict(one[1])})


def _row(found: tuple[str, GroupInfo]) -> tuple[Any, ...]:
    queue, g = found
    waiting = told(g.waiting, estimate=g.is_estimate)
    return (queue, g.running, waiting, g.oldest, g.noisy, g.weight, g.concurrency, g.rate, g.group)


@groups.command("set", short_help="Set the share and the limits of a group.")
@click.argument("queue", type=QUEUE)
@NAME
@click.option("--weight", type=int, help="Its share against the others; 1 is usual.")
@click.option("--concurrency", type=COUNT_OR_NONE, help="How many of its jobs run at once.")
@click.option("--rate", type=SHARE_OR_NONE, help="How many of its jobs start per second.")
@click.option("--burst", type=COUNT_OR_NONE, help="How many may start at once before the rate counts.")
@click.option("--max-depth", type=COUNT_OR_NONE, help="How many of its jobs may wait.")
@click.option("--max-age", type=DURATION_OR_NONE, help="How long its oldest job may be due.")
@pass_session
def set_group(session: Session, /, queue: str, name: str, **options: Any) -> None:
    """Set the share and the limits of a group of a queue; what you do not name stays.

    GROUP '*' stands for every group of the queue without its own settings.
    """
    source = click.get_current_context().get_parameter_source
    policy: Any = {key: value for key, value in options.items() if source(key) is not ParameterSource.DEFAULT}
    if not policy:
        raise click.UsageError("give --weight, --concurrency, --rate, --burst, --max-depth or --max-age")
    with session.client() as client:
        refuse_unknown_queue(client, queue)
        client.groups.set(queue, None if name == EVERY else name, **policy)
    if session.as_json:
        session.output.json({"queue": queue, "group": name, "changed": sorted(policy)})
    else:
        session.output.say(f"group {name} of queue {queue}: {', '.join(sorted(policy))}")


@groups.command(short_help="Drop the settings of a group.")
@click.argument("queue", type=QUEUE)
@NAME
@pass_session
def drop(session: Session, queue: str, name: str) -> Exit:
    """Drop the settings of a group of a queue; its jobs stay, and GROUP '*' is as for set."""
    with session.client() as client:
        dropped = client.groups.drop(queue, None if name == EVERY else name)
    if session.as_json:
        session.output.json({"queue": queue, "group": name, "dropped": dropped})
    else:
        state = "has no settings any more" if dropped else "had no settings"
        session.output.say(f"group {name} of queue {queue} {state}")
    return Exit.OK if dropped else Exit.FAILED
