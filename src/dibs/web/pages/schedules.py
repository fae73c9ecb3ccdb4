"""Schedules: when each runs next, how it has gone, and its rule in words."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from dibs.errors import NotPermitted
from dibs.web.cron_words import rule_in_words
from dibs.web.render import Look

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.requests import Request
    from starlette.responses import Response

NEXT = 5


async def schedules(request: Request) -> Response:
    """Every schedule."""
    look = Look(request)
    found = await look.at("schedules", look.client.schedules.list(), [])
    return await look.page("schedules.html", schedules=[(s, rule_in_words(s)) for s in found])


async def schedule(request: Request) -> Response:
    """One schedule."""
    look = Look(request)
    name = request.query_params.get("name", "")
    found = await look.client.schedules.get(name)
    now, upcoming, shown = await asyncio.gather(
        look.client.now(),
        look.at("the next runs", look.client.schedules.preview(name, NEXT), []),
        _shown(look, name),
    )
    return await look.page(
        "schedule.html",
        now=now,
        schedule=found,
        words=rule_in_words(found),
        upcoming=[(at, at.astimezone(ZoneInfo(found.zone))) for at in upcoming],
        runs=runs(shown),
        payload=look.settings.shown(shown["job"].get("payload")) if shown else None,
    )


async def _shown(look: Look, name: str) -> dict[str, Any] | None:
    try:
        return await look.client.schedules.show(name)
    except NotPermitted:
        return None


def runs(shown: dict[str, Any] | None) -> list[dict[str, datetime | Any]]:
    """The last runs; none if our role may not see them."""
    return list(shown["runs"]) if shown else []
