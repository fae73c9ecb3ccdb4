"""One round of all schedules."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dibs.cron import Cron
from dibs.db import calls
from dibs.errors import InvalidSchedule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dibs.db.calls.schedules import Fired, ToRead
    from dibs.db.database_async import AsyncDatabase

BATCH = 100
EVERY = 1.0
"""How often to look at least, while there are schedules: how soon the end of a run is noticed."""
IDLE = 5.0
"""How often to look for schedules while there are none."""
SLOTS = 2000
"""How many slots that have come are told at once; of more only the newest."""
AHEAD = 10
"""How many of the next slots are written down, for people to see."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """What a round did, and in how many seconds to look again."""

    counts: Mapping[str, int]
    again: float


async def tick(database: AsyncDatabase) -> Ticked:
    """Let SQL do its part, then tell it the slots of the cron schedules that are due."""
    done = await database.run(calls.schedules.run_schedules(BATCH))
    counts = Counter(done.counts)
    for asked in done.cron:
        fired = await database.run(_told(asked))
        counts.update(fired.counts)
    if not done.known:
        return Ticked(counts, IDLE)
    if done.more or done.cron:
        return Ticked(counts, 0.0 if done.more else min(EVERY, 0.1))
    return Ticked(counts, EVERY if done.wait is None else min(EVERY, max(done.wait, 0.01)))


def _told(asked: ToRead) -> calls.Call[Fired]:
    try:
        cron = Cron(asked.cron, asked.zone)
    except InvalidSchedule as error:
        return calls.schedules.fire(asked.name, asked.revision, [], [], error.message)
    slots = cron.due(asked.after, asked.until, SLOTS)
    upcoming = cron.upcoming(max(asked.after, asked.until), AHEAD)
    return calls.schedules.fire(asked.name, asked.revision, slots, upcoming, None)
