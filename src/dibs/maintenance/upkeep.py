"""Does all chores: until stopped, or once."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from dibs.cluster import Member
from dibs.db import calls
from dibs.errors import ServerError
from dibs.maintenance.chore import ChoreDone, ChoreFailed, Listener
from dibs.runtime import Loop, Service, StepFailed
from dibs.scheduler import fire_due

if TYPE_CHECKING:
    from dibs.db.database_async import AsyncDatabase
    from dibs.runtime import StepDone

CHORES = (
    "rescue", "schedule", "expire", "roll_up", "repair_groups", "repair_limits", "forget", "prune", "make_days",
)  # fmt: skip
"""Every chore, the most frequent first."""

LEAVE_WITHIN = 2.0
"""Seconds to try to leave the registry after a stop."""


def _ignore(_: ChoreDone | ChoreFailed) -> None:
    return


async def do(database: AsyncDatabase, chore: str, *, force: bool = False) -> ChoreDone | ChoreFailed:
    """Do a step of a chore if it is due or forced, and no other process is doing it."""
    step = await database.run(calls.upkeep.do_chore(chore, force))
    if step.error is not None:
        return ChoreFailed(chore, ServerError(step.error), step.failures, step.wait)
    counts = Counter(step.counts)
    counts.update(await fire_due(database, step.cron))  # Only the chore `schedule` has cron schedules.
    return ChoreDone(chore, step.wait, counts, step.more, step.outcome)


async def maintain(
    database: AsyncDatabase,
    *,
    until: asyncio.Event,
    listener: Listener = _ignore,
    name: str = "maintain",
) -> None:
    """Register, and run the upkeep until the event is set. Errors and restarts of the database do not end it.

    If an operator asks this process to stop, the event is set, too.
    """
    member = Member(database, name, on_stop=until.set)
    beat = Loop("beat", member.beat, listener=lambda fact: _report_failure(fact, listener))
    await Service([beat, *chore_loops(database, listener)]).run(until)
    try:
        async with asyncio.timeout(LEAVE_WITHIN):
            await member.retire()
    except TimeoutError:
        return


async def once(database: AsyncDatabase) -> list[ChoreDone | ChoreFailed]:
    """Do every chore now as :func:`do_fully` does. Return what each did."""
    return [await do_fully(database, chore) for chore in CHORES]


async def do_fully(database: AsyncDatabase, chore: str) -> ChoreDone | ChoreFailed:
    """Do a chore now, due or not, until it is done, fails or is busy elsewhere. Return what it did."""
    counts: Counter[str] = Counter()
    while True:
        done = await do(database, chore, force=True)
        if isinstance(done, ChoreFailed):
            return done
        counts.update(done.counts)
        if not done.more:
            return ChoreDone(chore, done.again, counts, outcome=done.outcome)


def chore_loops(database: AsyncDatabase, listener: Listener = _ignore) -> list[Loop]:
    """Make a loop for each chore. Any number of processes may run them: the first that finds a chore due does it."""
    return [_loop(chore, database, listener) for chore in CHORES]


def _loop(chore: str, database: AsyncDatabase, listener: Listener) -> Loop:
    async def step() -> float:
        done = await do(database, chore)
        listener(done)
        return done.again

    return Loop(chore, step, listener=lambda fact: _report_failure(fact, listener))


def _report_failure(fact: StepDone | StepFailed, listener: Listener) -> None:
    if isinstance(fact, StepFailed):
        listener(ChoreFailed(fact.loop, fact.error, fact.failures, fact.sleeps))
