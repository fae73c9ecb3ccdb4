"""All of the upkeep together: until stopped, or once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from dibs.cluster import Member
from dibs.db import calls
from dibs.errors import ServerError
from dibs.maintenance.chore import ChoreDone, ChoreFailed, Listener
from dibs.runtime import Loop, Service, Stumbled
from dibs.scheduler import answer

if TYPE_CHECKING:
    from dibs.db.database_async import AsyncDatabase
    from dibs.runtime import Stepped

CHORES = (
    "rescue", "schedule", "expire", "roll_up", "repair_groups", "repair_limits", "forget", "prune", "make_days",
)  # fmt: skip
"""Every chore, the most frequent first."""

GOODBYE = 2.0
"""How long to try to leave the registry when we stop, in seconds."""


def _silent(_: ChoreDone | ChoreFailed) -> None:
    return


async def do(database: AsyncDatabase, chore: str, *, force: bool = False) -> ChoreDone | ChoreFailed:
    """Do a step of a chore, unless another process is doing it, or it is not due and not forced."""
    step = await database.run(calls.upkeep.do_chore(chore, force))
    if step.error is not None:
        return ChoreFailed(chore, ServerError(step.error), step.failures, step.wait)
    counts = Counter(step.counts)
    counts.update(await answer(database, step.cron))
    return ChoreDone(chore, step.wait, counts, step.more, step.outcome)


async def maintain(
    database: AsyncDatabase,
    *,
    until: asyncio.Event,
    listener: Listener = _silent,
    name: str = "maintain",
) -> None:
    """Register, and run the upkeep until the event is set, through errors and restarts of the database.

    An operator who asks to stop sets the event, too.
    """
    member = Member(database, name, on_stop=until.set)
    beat = Loop("beat", member.beat, listener=lambda fact: _pass_on(fact, listener))
    await Service([beat, *loops(database, listener)]).run(until)
    try:
        async with asyncio.timeout(GOODBYE):
            await member.retire()
    except TimeoutError:
        return


async def once(database: AsyncDatabase) -> list[ChoreDone | ChoreFailed]:
    """Do every chore now, due or not, until there is nothing more to do; what each did."""
    return [await complete(database, chore) for chore in CHORES]


async def complete(database: AsyncDatabase, chore: str) -> ChoreDone | ChoreFailed:
    """Do one chore now, due or not, until there is nothing more to do; what it did."""
    counts: Counter[str] = Counter()
    while True:
        done = await do(database, chore, force=True)
        if isinstance(done, ChoreFailed):
            return done
        counts.update(done.counts)
        if not done.more:
            return ChoreDone(chore, done.again, counts, outcome=done.outcome)


def loops(database: AsyncDatabase, listener: Listener = _silent) -> list[Loop]:
    """A loop for each chore. Any number of processes may run them: the first that finds one due does it."""
    return [_loop(chore, database, listener) for chore in CHORES]


def _loop(chore: str, database: AsyncDatabase, listener: Listener) -> Loop:
    async def step() -> float:
        done = await do(database, chore)
        listener(done)
        return done.again

    return Loop(chore, step, listener=lambda fact: _pass_on(fact, listener))


def _pass_on(fact: Stepped | Stumbled, listener: Listener) -> None:
    if isinstance(fact, Stumbled):
        listener(ChoreFailed(fact.loop, fact.error, fact.failures, fact.sleeps))
