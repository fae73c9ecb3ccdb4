"""A process that pulls from shards until it is told to stop: ``python -m tests.integration.puller DSN QUEUE``."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
from typing import TYPE_CHECKING

from dibs.cluster import Holding, Member
from dibs.db import calls
from dibs.db.database_async import AsyncDatabase
from dibs.errors import ShardNotHeld
from dibs.runtime import Loop, Service

if TYPE_CHECKING:
    from dibs.job import Claimed


async def pull(dsn: str, queue: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    database = AsyncDatabase(dsn, pool_size=3)
    member = Member(database, "puller")
    print(await member.register(), flush=True)  # noqa: T201
    holding = Holding(database, member, [queue])

    async def work() -> float:
        jobs: list[Claimed] = []
        for name in holding.names():
            with contextlib.suppress(ShardNotHeld):
                found = await database.run(calls.jobs.claim([name], 2, member.secret, None))
                jobs += found
        if jobs:
            await asyncio.sleep(random.uniform(0.1, 0.4))
            await database.run(calls.jobs.complete_many(jobs, None, None))
        return 0.0 if jobs else 0.01

    loops = [Loop("hold", holding.hold), Loop("fence", holding.fence), Loop("work", work)]
    await Service(loops).run(stop)
    await holding.release()
    await member.retire()
    await database.close()


if __name__ == "__main__":
    asyncio.run(pull(*sys.argv[1:]))
