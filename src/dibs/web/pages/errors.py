"""Errors: groups of similar failures, and the error log."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING

from dibs.errors import InvalidArgument
from dibs.web.charts import Range
from dibs.web.render import Page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

PAGE = 50
DAY = Range("day", timedelta(days=1), timedelta(hours=1))


async def errors(request: Request) -> Response:
    """Show groups of failures, and the error log."""
    page = Page(request)
    query = request.query_params
    queue, source, before = query.get("queue", ""), query.get("source", ""), number_of(query.get("before"))
    now, groups, hours, logged = await asyncio.gather(
        page.client.now(),
        page.read("failures", page.client.failures.list(queue=queue or None, limit=PAGE), []),
        page.read("their charts", page.client.failures.by_hour(since=DAY.since), []),
        page.read("the log", page.client.channels.error_log(source=source or None, before=before, limit=PAGE + 1), []),
    )
    starts = {at: n for n, at in enumerate(DAY.starts(now))}
    sparks: dict[str, list[tuple[int, int]]] = defaultdict(lambda: [(0, 0)] * DAY.slots)
    for hour in hours:
        if (n := starts.get(hour.at)) is not None:
            sparks[hour.fingerprint][n] = (0, hour.failures)
    return await page.render(
        "errors.html",
        now=now,
        groups=groups,
        sparks=sparks,
        queue=queue,
        errors=logged[:PAGE],
        page_size=PAGE,
        source=source,
        before=before,
        more=logged[PAGE - 1]["id"] if len(logged) > PAGE else None,
    )


def number_of(text: str | None) -> int | None:
    """Parse a number of an address; None if there is none."""
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidArgument(f"{text[:40]!r} is not a number")
    return int(text)
