"""Overview: throughput, durations, queues, and urgent findings."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from dibs.errors import NotPermitted
from dibs.web.charts import RANGES, Range, filled
from dibs.web.findings import page_of
from dibs.web.pages.doctor import SEVERITY_STATES
from dibs.web.render import Page

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from starlette.requests import Request
    from starlette.responses import Response

    from dibs.info import Depth, Finding
    from dibs.stats import Statistics

PACE = Range("pace", timedelta(minutes=30), timedelta(minutes=2))
"""The period of the sparklines of queues."""
LOST = timedelta(minutes=1)
"""A worker that was not seen for this long has died, hangs or lost its database."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue in the list: its depth, and its recent runs as (succeeded, failed)."""

    depth: Depth
    spark: list[tuple[int, int]]

    @property
    def ended(self) -> int:
        """The number of runs that ended lately."""
        return sum(good + bad for good, bad in self.spark)

    @property
    def empty_in(self) -> timedelta | None:
        """The time to work off the backlog at the rate of the last four periods; None if nothing succeeded in them."""
        waiting = self.depth.ready + self.depth.blocked
        if not waiting:
            return timedelta()
        recent = sum(good for good, _ in self.spark[-4:])
        return waiting / recent * 4 * PACE.every if recent else None


async def overview(request: Request) -> Response:
    """Show the state of the whole system."""
    page = Page(request)
    client = page.client
    chosen = RANGES.get(request.query_params.get("range", ""), RANGES["hour"])
    now, periods, ended, depths, workers, found = await asyncio.gather(
        client.now(),
        page.read("the charts", client.stats.statistics(by=(), since=chosen.since, every=chosen.every), []),
        page.read("the pace of queues", client.stats.statistics(by="queue", since=PACE.since, every=PACE.every), []),
        page.read("what is in the queues", client.queues.depths(), []),
        page.read("workers", client.workers.list(), []),
        findings(page),
    )
    return await page.render(
        "overview.html",
        now=now,
        chosen=chosen,
        ranges=RANGES.values(),
        periods=filled(periods, chosen, now),
        lines=queue_rows(depths, ended, now),
        total=total,
        alive=[w for w in workers if now - w.seen_at < LOST],
        concerns=[f for f in found or () if is_urgent(f)],
        others=sum(not is_urgent(f) for f in found or ()),
        page_of=page_of,
        severity_states=SEVERITY_STATES,
    )


def queue_rows(depths: Iterable[Depth], ended: Iterable[Statistics], now: datetime) -> list[QueueRow]:
    """Return the queues, each with its runs of the last half hour."""
    starts = {at: n for n, at in enumerate(PACE.starts(now))}
    sparks: dict[str, list[tuple[int, int]]] = defaultdict(lambda: [(0, 0)] * PACE.slots)
    for runs in ended:
        if runs.queue is not None and runs.at is not None and (n := starts.get(runs.at)) is not None:
            sparks[runs.queue][n] = (runs.succeeded, runs.failed + runs.lost)
    return [QueueRow(depth, sparks[depth.queue]) for depth in depths]


def total(lines: Iterable[QueueRow], name: str) -> str:
    """Return a count of all queues together, marked if it contains an estimate."""
    depths = [line.depth for line in lines]
    mark = "≈ " if any(d.told(name).startswith("≈") for d in depths) else ""
    return mark + f"{sum(getattr(d, name) for d in depths):,}"


async def findings(page: Page) -> list[Finding] | None:
    """Return the findings; None if they are not known, because the role sees some queues only or it takes too long."""
    try:
        return await page.read("what is wrong", page.request.app.state.findings.now(), None)
    except NotPermitted:
        return None


def is_urgent(finding: Finding) -> bool:
    """True if a finding belongs on the first page: errors, and findings with a page where something can be done."""
    return finding.level == "error" or (finding.level == "warning" and page_of(finding)[0] != "doctor")
