"""Jobs: a list by filters that are all in its address, in pages by key."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dibs.operation import Found
from dibs.web.filters import STATES, Asked, id_of
from dibs.web.pages.many import ACTS
from dibs.web.render import Look

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

PAGE = 50
NONE = Found([], 0, None)


async def jobs(request: Request) -> Response:
    """The jobs that match."""
    look = Look(request)
    asked = Asked.read(request.query_params)
    before = id_of(start) if (start := request.query_params.get("before")) else None
    now = await look.client.now()
    found, queues = await asyncio.gather(
        look.at(
            "the jobs",
            look.client.find_jobs(asked.filter(now, look.settings), limit=PAGE, before=before, within=0),
            NONE,
        ),
        look.client.queues.list(),
    )
    return await look.page(
        "jobs.html",
        now=now,
        asked=asked,
        before=before,
        found=found,
        more=found.next,
        queues=[q.name for q in queues],
        choices=STATES,
        acts=[act for act in ACTS.values() if request.state.access.may(act.action)],
    )
