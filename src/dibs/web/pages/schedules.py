"""Schedules: their rules in words, next runs, last runs and health."""

from __future__ import annotations

import asyncio
from datetime import UTC
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from dibs.errors import NotPermitted
from dibs.web.cron_words import rule_in_words
from dibs.web.render import Page

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.requests import Request
    from starlette.responses import Response

NEXT = 5


async def schedules(request: Request) -> Response:
    """List the schedules."""
    page = Page(request)
    found = await page.read("schedules", page.client.schedules.list(), [])
    return await page.render("schedules.html", schedules=[(s, rule_in_words(s)) for s in found])


async def schedule(request: Request) -> Response:
    """Show one schedule."""
    page = Page(request)
    name = request.query_params.get("name", "")
    found = await page.client.schedules.get(name)
    now, upcoming, shown = await asyncio.gather(
        page.client.now(),
        page.read("the next runs", page.client.schedules.preview(name, NEXT), []),
        _shown(page, name),
    )
    return await page.render(
        "schedule.html",
        now=now,
        schedule=found,
        words=rule_in_words(found),
        upcoming=[(at, local_time(at, found.zone)) for at in upcoming],
        runs=runs(shown),
        payload=page.settings.cover(shown["job"].get("payload")) if shown else None,
    )


def local_time(at: datetime, zone: str) -> datetime:
    """Return a time in a zone; in UTC if this machine does not know the zone."""
    try:
        return at.astimezone(ZoneInfo(zone))
    except (KeyError, ValueError, OSError):
        return at.astimezone(UTC)


async def _shown(page: Page, name: str) -> dict[str, Any] | None:
    try:
        return await page.client.schedules.show(name)
    except NotPermitted:
        return None


def runs(shown: dict[str, Any] | None) -> list[dict[str, datetime | Any]]:
    """Return the last runs; none if the role may not see them."""
    return list(shown["runs"]) if shown else []
