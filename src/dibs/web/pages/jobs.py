"""Jobs: a list by filters that are all in its address, in pages by key."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

from dibs.errors import InvalidArgument
from dibs.states import DEAD, WAITING, State
from dibs.web.render import Look

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams
    from starlette.requests import Request
    from starlette.responses import Response

PAGE = 50
GROUPS = {"waiting": WAITING, "dead": DEAD, **{s.value: {s} for s in State if s is not State.UNKNOWN}}
"""What can be asked for: a state, or a word for several."""


async def jobs(request: Request) -> Response:
    """The jobs that match."""
    look = Look(request)
    asked = filters(request.query_params)
    before = id_of(request.query_params.get("before"))
    found, queues = await asyncio.gather(
        look.at("the jobs", look.client.jobs(**wanted(asked), limit=PAGE + 1, before=before), []),
        look.client.queues(),
    )
    return await look.page(
        "jobs.html",
        asked=asked,
        before=before,
        jobs=found[:PAGE],
        more=found[PAGE - 1].id if len(found) > PAGE else None,
        queues=[q.name for q in queues],
        choices=GROUPS,
    )


def filters(query: QueryParams) -> dict[str, Any]:
    """What was asked for, as it is in the address."""
    states = {s for s in query.getlist("state") if s}
    if unknown := states - GROUPS.keys():
        raise InvalidArgument(f"there is no state {min(unknown)!r}", hint=f"there are {', '.join(GROUPS)}")
    return {"state": sorted(states), "queue": query.get("queue", ""), "kind": query.get("kind", "")}


def wanted(asked: dict[str, Any]) -> dict[str, Any]:
    """The same, as the client takes it."""
    states = {s.value for name in asked["state"] for s in GROUPS[name]}
    return {"state": sorted(states) or None, "queue": asked["queue"] or None, "kind": asked["kind"] or None}


def id_of(text: str | None) -> UUID | None:
    """A job's id out of an address."""
    try:
        return UUID(text) if text else None
    except ValueError:
        raise InvalidArgument(f"{text!r} is not the id of a job") from None
