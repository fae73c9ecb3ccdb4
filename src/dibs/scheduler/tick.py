"""Computes the slots of cron schedules for SQL."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dibs.cron import Cron
from dibs.db import calls
from dibs.errors import InvalidSchedule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dibs.db.calls.schedules import Fired, ToRead
    from dibs.db.database_async import AsyncDatabase

MOST_SLOTS = 2000
"""The most slots of a schedule that are sent at once; if more have come, only the newest."""
UPCOMING = 10
"""The number of future slots that are stored, for people to see."""


async def fire_due(database: AsyncDatabase, schedules: Iterable[ToRead]) -> Counter[str]:
    """Send SQL the slots of cron schedules that are due. Return the sums of its counts, such as ``fired``.

    SQL may ask several processes for the same slots. It uses those that come first.
    """
    counts: Counter[str] = Counter()
    for schedule in schedules:
        counts.update((await database.run(_fire(schedule))).counts)
    return counts


def _fire(schedule: ToRead) -> calls.Call[Fired]:
    try:
        cron = Cron(schedule.cron, schedule.zone)
    except InvalidSchedule as error:
        return calls.schedules.fire(schedule.name, schedule.revision, [], [], error.message)
    slots = cron.due(schedule.after, schedule.until, MOST_SLOTS)
    upcoming = cron.upcoming(max(schedule.after, schedule.until), UPCOMING)
    return calls.schedules.fire(schedule.name, schedule.revision, slots, upcoming, None)
