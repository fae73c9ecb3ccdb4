"""Jobs: a list in pages. The address holds its filter and its cursor."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dibs.operation import Found
from dibs.web.filters import STATES, JobSearch, id_of
from dibs.web.pages.many import ACTS
from dibs.web.render import Page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

PAGE = 50
NONE = Found([], 0, None)


async def jobs(request: Request) -> Response:
    """List the jobs that match."""
    page = Page(request)
    search = JobSearch.read(request.query_params)
    before = id_of(start) if (start := request.query_params.get("before")) else None
    now = await page.client.now()
    found, queues = await asyncio.gather(
        page.read(
            "the jobs",
            page.client.find_jobs(search.filter(now, page.settings), limit=PAGE, before=before, within=0),
            NONE,
        ),
        page.client.queues.list(),
    )
    return await page.render(
        "jobs.html",
        now=now,
        search=search,
        before=before,
        found=found,
        page_size=PAGE,
        more=found.next,
        queues=[q.name for q in queues],
        choices=STATES,
        acts=[act for act in ACTS.values() if request.state.access.may(act.action)],
    )
