"""All of the upkeep together: for ever, or once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dibs.cluster import Member
from dibs.maintenance.done import Chore, Done, Report, Trouble
from dibs.maintenance.expirer import expire
from dibs.maintenance.forgetter import forget
from dibs.maintenance.partitions import make_days
from dibs.maintenance.pruner import prune
from dibs.maintenance.rescuer import rescue
from dibs.runtime import Loop, Service, Stumbled

if TYPE_CHECKING:
    from dibs.db.database_async import AsyncDatabase
    from dibs.runtime import Stepped

CHORES: tuple[Chore, ...] = (rescue, expire, make_days, prune, forget)
"""Every chore, the most urgent first."""

GOODBYE = 2.0
"""How long to try to leave the registry when we stop, in seconds."""


def _silent(_: Done | Trouble) -> None:
    return


async def maintain(
    database: AsyncDatabase,
    *,
    until: asyncio.Event,
    report: Report = _silent,
    name: str = "maintain",
) -> None:
    """Run every chore as a loop until the event is set, through errors and restarts of the database.

    Any number of processes may do so at once: each takes what the others have not locked.
    """
    member = Member(database, name)
    beat = Loop("beat", member.beat, listener=lambda fact: _pass_on(fact, report))
    await Service([_loop(chore, database, report) for chore in CHORES] + [beat]).run(until)
    try:
        async with asyncio.timeout(GOODBYE):
            await member.retire()
    except TimeoutError:
        return


async def once(database: AsyncDatabase) -> list[Done]:
    """Run every chore once; what each did."""
    return [await chore(database) for chore in CHORES]


def _loop(chore: Chore, database: AsyncDatabase, report: Report) -> Loop:
    async def step() -> float:
        done = await chore(database)
        report(done)
        return done.again

    return Loop(chore.__name__, step, listener=lambda fact: _pass_on(fact, report))


def _pass_on(fact: Stepped | Stumbled, report: Report) -> None:
    if isinstance(fact, Stumbled):
        report(Trouble(fact.loop, fact.error, fact.failures, fact.sleeps))
