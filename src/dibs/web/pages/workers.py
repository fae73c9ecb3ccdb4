"""Workers: alive or lost, with their running jobs."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from dibs.web.pages.overview import LOST
from dibs.web.render import Page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from dibs.info import RunningJob

MOST = 500
"""The number of running jobs that the page shows."""


async def workers(request: Request) -> Response:
    """List the workers."""
    page = Page(request)
    now, found, running = await asyncio.gather(
        page.client.now(),
        page.read("workers", page.client.workers.list(), []),
        page.read("what runs", page.client.workers.running(limit=MOST), []),
    )
    jobs_of: dict[int | None, list[RunningJob]] = defaultdict(list)
    for job in running:
        jobs_of[job.worker].append(job)
    known = {w.id for w in found}
    return await page.render(
        "workers.html",
        now=now,
        workers=sorted(((w, now - w.seen_at < LOST) for w in found), key=lambda pair: (not pair[1], pair[0].id)),
        jobs_of=jobs_of,
        others=[job for worker, jobs in jobs_of.items() if worker not in known for job in jobs],
        most=MOST if len(running) == MOST else None,
    )
