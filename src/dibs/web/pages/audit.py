"""Audit: the changes by operators, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.web.pages.errors import number_of
from dibs.web.render import Page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

PAGE = 50


async def audit(request: Request) -> Response:
    """Show the changes by operators. ``before`` is the last entry of the page before."""
    page = Page(request)
    before = number_of(request.query_params.get("before"))
    found = await page.read("the audit", page.client.audit(before=before, limit=PAGE + 1), [])
    return await page.render(
        "audit.html",
        changes=[(a, [page.settings.cover(part) for part in (a.filter, a.detail) if part]) for a in found[:PAGE]],
        more=found[PAGE - 1].operation if len(found) > PAGE else None,
    )
