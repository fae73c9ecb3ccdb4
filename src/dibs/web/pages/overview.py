"""Overview: how much goes through, how long it takes, what each queue has, and what is wrong now."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from dibs.errors import NotPermitted
from dibs.web.charts import RANGES, Range, filled
from dibs.web.findings import page_of
from dibs.web.pages.doctor import LOOKS
from dibs.web.render import Look

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
class Line:
    """A queue in the list: what is in it, what ended in it lately, and when it will be empty at that pace."""

    depth: Depth
    spark: list[tuple[int, int]]

    @property
    def ended(self) -> int:
        """The number of runs that ended lately."""
        return sum(good + bad for good, bad in self.spark)

    @property
    def empty_in(self) -> timedelta | None:
        """The time to work off the backlog at the present rate; None if nothing moves."""
        waiting = self.depth.ready + self.depth.blocked
        if not waiting:
            return timedelta()
        recent = sum(good for good, _ in self.spark[-4:])
        return waiting / recent * 4 * PACE.every if recent else None


async def overview(request: Request) -> Response:
    """Show the state of the whole system."""
    look = Look(request)
    client = look.client
    chosen = RANGES.get(request.query_params.get("range", ""), RANGES["hour"])
    now, periods, ended, depths, workers, found = await asyncio.gather(
        client.now(),
        look.at("the charts", client.stats.statistics(by=(), since=chosen.since, every=chosen.every), []),
        look.at("the pace of queues", client.stats.statistics(by="queue", since=PACE.since, every=PACE.every), []),
        look.at("what is in the queues", client.queues.depths(), []),
        look.at("workers", client.workers.list(), []),
        concerns(look),
    )
    return await look.page(
        "overview.html",
        now=now,
        chosen=chosen,
        ranges=RANGES.values(),
        periods=filled(periods, chosen, now),
        lines=lines(depths, ended, now),
        total=total,
        alive=[w for w in workers if now - w.seen_at < LOST],
        concerns=[f for f in found or () if is_urgent(f)],
        others=sum(not is_urgent(f) for f in found or ()),
        page_of=page_of,
        looks=LOOKS,
    )


def lines(depths: Iterable[Depth], ended: Iterable[Statistics], now: datetime) -> list[Line]:
    """The queues, each with its last half hour."""
    starts = {at: n for n, at in enumerate(PACE.starts(now))}
    sparks: dict[str, list[tuple[int, int]]] = defaultdict(lambda: [(0, 0)] * PACE.slots)
    for s in ended:
        if s.queue is not None and s.at is not None and (n := starts.get(s.at)) is not None:
            sparks[s.queue][n] = (s.succeeded, s.failed + s.lost)
    return [Line(depth, sparks[depth.queue]) for depth in depths]


def total(lines: Iterable[Line], name: str) -> str:
    """A number of all queues together, marked if some of it is an estimate."""
    depths = [line.depth for line in lines]
    mark = "≈ " if any(d.told(name).startswith("≈") for d in depths) else ""
    return mark + f"{sum(getattr(d, name) for d in depths):,}"


async def concerns(look: Look) -> list[Finding] | None:
    """Return the findings; None if they are not known, because the role sees some queues only or it takes too long."""
    try:
        return await look.at("what is wrong", look.request.app.state.findings.now(), None)
    except NotPermitted:
        return None


def is_urgent(finding: Finding) -> bool:
    """True if a finding belongs on the first page: errors, and findings with a page where something can be done."""
    return finding.level == "error" or (finding.level == "warning" and page_of(finding)[0] != "doctor")
