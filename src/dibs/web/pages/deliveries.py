"""Deliveries and processes: what the channels sent, and what supervisors will look at."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dibs.web.render import Look

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

PAGE = 50


async def deliveries(request: Request) -> Response:
    """The newest deliveries, and processes under a supervisor."""
    look = Look(request)
    interrupted = request.query_params.get("interrupted") == "yes"
    found, processes = await asyncio.gather(
        look.at("deliveries", look.client.channels.deliveries(interrupted=interrupted, limit=PAGE), []),
        look.at("processes", look.client.channels.supervised(limit=PAGE), []),
    )
    return await look.page("deliveries.html", deliveries=found, processes=processes, interrupted=interrupted, page=PAGE)
