"""Workers: who is alive, what each runs, and what was lost."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from dibs.web.pages.overview import LOST
from dibs.web.render import Look

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from dibs.info import RunningJob

MOST = 500
"""The number of running jobs that the page shows."""


async def workers(request: Request) -> Response:
    """Every worker."""
    look = Look(request)
    now, found, running = await asyncio.gather(
        look.client.now(),
        look.at("workers", look.client.workers.list(), []),
        look.at("what runs", look.client.workers.running(limit=MOST), []),
    )
    held: dict[int | None, list[RunningJob]] = defaultdict(list)
    for job in running:
        held[job.worker].append(job)
    known = {w.id for w in found}
    return await look.page(
        "workers.html",
        now=now,
        workers=sorted(((w, now - w.seen_at < LOST) for w in found), key=lambda pair: (not pair[1], pair[0].id)),
        held=held,
        others=[job for worker, jobs in held.items() if worker not in known for job in jobs],
        most=MOST if len(running) == MOST else None,
    )
