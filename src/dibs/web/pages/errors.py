"""Errors: what went wrong outside of jobs' own runs, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.errors import InvalidArgument
from dibs.web.render import Look

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

PAGE = 50


async def errors(request: Request) -> Response:
    """The error log."""
    look = Look(request)
    source = request.query_params.get("source", "")
    before = number_of(request.query_params.get("before"))
    found = await look.at("errors", look.client.errors(source=source or None, before=before, limit=PAGE + 1), [])
    return await look.page(
        "errors.html",
        errors=found[:PAGE],
        source=source,
        before=before,
        more=found[PAGE - 1]["id"] if len(found) > PAGE else None,
    )


def number_of(text: str | None) -> int | None:
    """A number out of an address."""
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidArgument(f"{text[:40]!r} is not a number")
    return int(text)
