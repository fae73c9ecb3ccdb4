"""Deliveries of channels, and processes under supervisors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dibs.web.render import Page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

PAGE = 50


async def deliveries(request: Request) -> Response:
    """List the newest deliveries, and the processes under a supervisor."""
    page = Page(request)
    interrupted = request.query_params.get("interrupted") == "yes"
    found, processes = await asyncio.gather(
        page.read("deliveries", page.client.channels.deliveries(interrupted=interrupted, limit=PAGE), []),
        page.read("processes", page.client.channels.supervised(limit=PAGE), []),
    )
    return await page.render(
        "deliveries.html", deliveries=found, processes=processes, interrupted=interrupted, page=PAGE
    )
