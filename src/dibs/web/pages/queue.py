"""Queue: its counts, its charts, its groups, its limits and its policy."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

from dibs.info import Depth, GroupInfo, SettingInfo
from dibs.queue_settings import SETTINGS, Setting
from dibs.web.charts import RANGES, filled
from dibs.web.render import Page

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from dibs.info import Limit, RunningJob

STATES = ("scheduled", "ready", "blocked", "running", "failed", "exhausted", "expired", "cancelled")
SHOWN = 10
"""The number of groups, and of holders of a limit, that the page shows."""
ORDERS = ("busiest", "longest waiting", "noisy")


async def queue(request: Request) -> Response:
    """Show one queue."""
    page = Page(request)
    client = page.client
    name = request.query_params.get("name", "")
    chosen = RANGES.get(request.query_params.get("range", ""), RANGES["hour"])
    order = request.query_params.get("groups", "")
    (now, known, depth, priorities, estimate), (periods, limits, groups, settings) = await asyncio.gather(
        asyncio.gather(
            client.now(),
            client.queues.get(name),
            page.read("what is in the queue", client.queues.depth(name), Depth(name)),
            page.read("its priorities", client.queues.depth_by_priority(name), []),
            page.read("when it will be empty", client.queues.drain_estimate(name), None),
        ),
        asyncio.gather(
            page.read("the charts", client.stats.statistics(name, by=(), since=chosen.since, every=chosen.every), []),
            page.read("limits", limits_with_holders(page, name), []),
            page.read("groups", client.groups.list(name, limit=SHOWN), []),
            page.read("its policy", client.queues.settings(name), []),
        ),
    )
    return await page.render(
        "queue.html",
        now=now,
        queue=known,
        own=[pair for pair in policy(settings) if pair[1].source != "default" or pair[1].tasks],
        defaults=[pair for pair in policy(settings) if pair[1].source == "default" and not pair[1].tasks],
        depth=depth,
        priorities=priorities,
        states=STATES,
        estimate=estimate,
        chosen=chosen,
        ranges=RANGES.values(),
        periods=filled(periods, chosen, now),
        limits=limits,
        groups=ordered(groups, order)[:SHOWN],
        order=order if order in ORDERS else ORDERS[0],
        orders=[order for order in ORDERS if order != "noisy" or any(g.noisy for g in groups)] if groups else [],
    )


async def limits_with_holders(page: Page, queue: str) -> list[tuple[Limit, list[RunningJob]]]:
    """Return the limits of a queue, each with the jobs that hold its units."""
    limits = await page.client.limits.list(queue, limit=SHOWN)
    jobs = {job.id: job for job in await page.client.workers.held([id for limit in limits for id in limit.holders])}
    return [(limit, [jobs[id] for id in limit.holders if id in jobs]) for limit in limits]


def ordered(groups: list[GroupInfo], order: str) -> list[GroupInfo]:
    """Return the groups in the chosen order."""
    if order == "noisy":
        return [g for g in groups if g.noisy]
    if order == "longest waiting":
        return sorted((g for g in groups if g.oldest is not None), key=lambda g: g.oldest or timedelta(), reverse=True)
    return groups


def policy(settings: list[SettingInfo]) -> list[tuple[Setting, SettingInfo]]:
    """Return the settings of a queue, each with its definition; skip those of a newer schema."""
    definitions = {setting.name: setting for setting in SETTINGS}
    return [(definitions[one.setting], one) for one in settings if one.setting in definitions]
