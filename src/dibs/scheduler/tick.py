"""Slots of cron schedules, computed for SQL."""

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

SLOTS = 2000
"""How many slots that have come are told at once; of more only the newest."""
AHEAD = 10
"""How many of the next slots are written down, for people to see."""


async def answer(database: AsyncDatabase, cron: Iterable[ToRead]) -> Counter[str]:
    """Tell SQL the slots of the cron schedules that are due; what happened to them.

    Another process may have been asked the same: the first answer counts.
    """
    counts: Counter[str] = Counter()
    for asked in cron:
        counts.update((await database.run(_told(asked))).counts)
    return counts


def _told(asked: ToRead) -> calls.Call[Fired]:
    try:
        cron = Cron(asked.cron, asked.zone)
    except InvalidSchedule as error:
        return calls.schedules.fire(asked.name, asked.revision, [], [], error.message)
    slots = cron.due(asked.after, asked.until, SLOTS)
    upcoming = cron.upcoming(max(asked.after, asked.until), AHEAD)
    return calls.schedules.fire(asked.name, asked.revision, slots, upcoming, None)
