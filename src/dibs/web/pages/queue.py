"""Queue: what is in it, what went through it, its policy and its limits."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from dibs.errors import UnknownQueue
from dibs.info import Depth, QueueInfo
from dibs.web.charts import RANGES, filled
from dibs.web.render import Look

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

NOT_POLICY = {"name", "paused_at", "created_at"}
STATES = ("scheduled", "ready", "blocked", "running", "failed", "exhausted", "expired", "cancelled")


async def queue(request: Request) -> Response:
    """One queue."""
    look = Look(request)
    client = look.client
    name = request.query_params.get("name", "")
    chosen = RANGES.get(request.query_params.get("range", ""), RANGES["hour"])
    known = {q.name: q for q in await client.queues()}
    if name not in known:
        raise UnknownQueue(f"there is no queue {name!r}", hint="the overview lists them")
    now, depth, estimate, periods, limits = await asyncio.gather(
        client.now(),
        look.at("what is in the queue", client.depth(name), Depth(name)),
        look.at("when it will be empty", client.drain_estimate(name), None),
        look.at("the charts", client.periods(name, since=chosen.since, every=chosen.every), []),
        look.at("limits", client.limits(), []),
    )
    return await look.page(
        "queue.html",
        now=now,
        queue=known[name],
        policy=policy(known[name]),
        depth=depth,
        states=STATES,
        estimate=estimate,
        chosen=chosen,
        ranges=RANGES.values(),
        periods=filled(periods, chosen, now),
        limits=[limit for limit in limits if limit.queue == name or limit.scope in {"kind", "resource"}],
    )


def policy(queue: QueueInfo) -> list[tuple[str, Any]]:
    """The settings of a queue."""
    return [(f.name, getattr(queue, f.name)) for f in fields(queue) if f.name not in NOT_POLICY]
