"""Pages for programs: metrics of the fleet, and the number of workers that a queue needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict
from starlette.responses import JSONResponse, Response

from dibs.errors import InvalidArgument
from dibs.web.filters import span_of
from dibs.web.render import Page, for_machines

if TYPE_CHECKING:
    from starlette.requests import Request

FRESH = {"Cache-Control": "no-store"}


async def metrics(request: Request) -> Response:
    """Return the metrics of the fleet."""
    page = await request.app.state.fleet.page()
    return Response(page.body, page.status, {**FRESH, "Content-Type": page.content_type})


async def workers_wanted(request: Request) -> Response:
    """Return the number of workers that a queue needs, as JSON.

    Takes ``name`` of the queue, ``target``, ``slots`` and ``run_time``.
    """
    for_machines(request)
    query = request.query_params
    page = Page(request)
    if not query.get("name"):
        raise InvalidArgument("which queue?", hint="?name=mail&target=5m")
    [found] = await page.client.workers.wanted(
        query["name"],
        target=span_of(query["target"]) if "target" in query else page.settings.target,
        slots=_number(query["slots"]) if "slots" in query else None,
        run_time=span_of(query["run_time"]) if "run_time" in query else None,
    )
    answer: dict[str, Any] = asdict(found)
    answer["run_mean"] = None if found.run_mean is None else found.run_mean.total_seconds()
    return JSONResponse(answer, headers=FRESH)


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise InvalidArgument(f"{text[:80]!r} is not a number of jobs")
    return int(text)
