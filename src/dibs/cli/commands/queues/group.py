"""The list of queues, and the group of all commands around one."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict

from dibs.cli.command import Listing
from dibs.cli.session import Session, pass_session

if TYPE_CHECKING:
    from dibs import Client
    from dibs.info import Depth

COLUMNS = ("queue", "?paused", ">scheduled", ">ready", "?>blocked", ">running", ">dead", ">oldest ready")
LISTED = (*COLUMNS, ">today")
"""The columns of a table of queues. The number of jobs that succeeded since midnight comes last."""


@click.group(cls=Listing)
@pass_session
def queues(session: Session) -> None:
    """List the queues and what is in them; show, set, pause, purge or drop one."""
    with session.client() as client:
        depths = client.queues.depths()
        today = _today(client)
    session.show(
        depths,
        LISTED,
        lambda d: (*row(d), today[d.queue]),
        empty="there are no queues yet; a queue is made by its first job",
        as_json=lambda d: {**counts(d), "succeeded_today": today[d.queue]},
    )


def _today(client: Client) -> Counter[str]:
    """Count the jobs that succeeded since midnight in UTC, as far as they are rolled up."""
    midnight = client.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    day = timedelta(days=1)
    found = client.stats.statistics(by="queue", since=day, every=day)
    return Counter({s.queue: s.succeeded for s in found if s.queue is not None and s.at == midnight})


def row(d: Depth) -> tuple[Any, ...]:
    """Return the counts of a queue as a row of the table."""
    counts = (d.told(state) for state in ("scheduled", "ready", "blocked", "running", "dead"))
    return (d.queue, d.paused, *counts, d.oldest_ready if d.ready else None)


def counts(d: Depth) -> dict[str, Any]:
    """Return the counts of a queue as JSON."""
    return {**asdict(d), "waiting": d.waiting, "dead": d.dead}
