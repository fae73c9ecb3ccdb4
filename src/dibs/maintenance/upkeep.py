"""All of the upkeep together: until stopped, or once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dibs.cluster import Leader, Member
from dibs.maintenance.chore import Chore, ChoreDone, ChoreFailed, Listener
from dibs.maintenance.expirer import expire
from dibs.maintenance.forgetter import forget
from dibs.maintenance.mender import mend
from dibs.maintenance.partitions import make_days
from dibs.maintenance.pruner import prune
from dibs.maintenance.rescuer import rescue
from dibs.maintenance.roller import roll_up
from dibs.maintenance.schedules import schedule
from dibs.runtime import Loop, Service, Stumbled

if TYPE_CHECKING:
    from dibs.db.database_async import AsyncDatabase
    from dibs.runtime import Stepped

CHORES: tuple[Chore, ...] = (rescue, schedule, expire, mend, make_days, prune, forget, roll_up)
"""Every chore, the most urgent first."""

EVERYBODYS: frozenset[Chore] = frozenset({rescue})
"""Chores that every process does: the leader's death is among the things they repair."""

FOLLOWER_LOOKS = 5.0
"""How often a process that does not lead asks whether it does now, in seconds."""

GOODBYE = 2.0
"""How long to try to leave the registry when we stop, in seconds."""


def _silent(_: ChoreDone | ChoreFailed) -> None:
    return


async def maintain(
    database: AsyncDatabase,
    *,
    until: asyncio.Event,
    listener: Listener = _silent,
    name: str = "maintain",
) -> None:
    """Register, and run the upkeep until the event is set, through errors and restarts of the database."""
    member = Member(database, name, {"upkeep": True})
    beat = Loop("beat", member.beat, listener=lambda fact: _pass_on(fact, listener))
    await Service([beat, *loops(database, Leader(database, member), listener)]).run(until)
    try:
        async with asyncio.timeout(GOODBYE):
            await member.retire()
    except TimeoutError:
        return


async def once(database: AsyncDatabase) -> list[ChoreDone]:
    """Run every chore once; what each did."""
    return [await chore(database) for chore in CHORES]


def loops(database: AsyncDatabase, leader: Leader, listener: Listener = _silent) -> list[Loop]:
    """A loop for each chore. Any number of processes may run them: the leader works, the others wait."""
    return [_loop(chore, database, leader, listener) for chore in CHORES]


def _loop(chore: Chore, database: AsyncDatabase, leader: Leader, listener: Listener) -> Loop:
    async def step() -> float:
        if chore not in EVERYBODYS and not await leader.leads():
            return FOLLOWER_LOOKS
        done = await chore(database)
        listener(done)
        return done.again

    return Loop(chore.__name__, step, listener=lambda fact: _pass_on(fact, listener))


def _pass_on(fact: Stepped | Stumbled, listener: Listener) -> None:
    if isinstance(fact, Stumbled):
        listener(ChoreFailed(fact.loop, fact.error, fact.failures, fact.sleeps))
