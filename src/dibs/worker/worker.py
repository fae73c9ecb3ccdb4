"""The worker: puts its parts together, runs them, and stops without losing a job."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, TypeVar

from dibs.client.find import find_database
from dibs.cluster import Holding, Member
from dibs.db.listen import AsyncBell
from dibs.errors import DibsError, HandlersLeft
from dibs.events import PoolerFound, StopAsked, Trouble, UpkeepDone, WorkerStarted, WorkerStopped, WorkerStopping
from dibs.maintenance import ChoreDone, complete, loops
from dibs.runtime import Loop, Service, Stumbled, end, limited
from dibs.runtime.points import reach
from dibs.worker.announce import Announcement, declare_tasks
from dibs.worker.completer import Completer
from dibs.worker.executor import Executor
from dibs.worker.hand import Hand
from dibs.worker.keeper import Keeper
from dibs.worker.pools import Pools
from dibs.worker.processes import check_importable
from dibs.worker.producer import Producer
from dibs.worker.pulse import SILENCE, Pulse
from dibs.worker.runners import Runners
from dibs.worker.shares import Shares
from dibs.worker.source import Source

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dibs.client.app import App
    from dibs.maintenance import ChoreFailed
    from dibs.runtime import Stepped
    from dibs.worker_settings import WorkerSettings

R = TypeVar("R")

STOPPING = 1.0
"""How many seconds a claim that is under way, or a loop, has to end."""
COUNTED = 10_000
"""A worker that ran no more jobs than this counts them as it leaves; after more, the upkeep of another one does."""
GOODBYE = 2.0
"""How many seconds to try to say goodbye: others find out by themselves."""


class Worker:
    """Runs the tasks of an app until told to stop."""

    def __init__(self, app: App, settings: WorkerSettings) -> None:
        self.app = app
        self.settings = settings
        self._pools = Pools(lambda: find_database(app.dsn))
        self._hand = Hand(Shares(settings.shares))
        self._pulse = Pulse(app.events)
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._announcement = Announcement(app, self._pools.registry, settings.name)
        self._keeper: Keeper | None = None
        self._producer: Producer | None = None
        self._holding: Holding | None = None
        self._member: Member | None = None
        self._beating: Loop | None = None
        self.was_asked = False
        """Whether somebody asked this worker to stop, by ``dibs workers stop`` or the like."""
        self.on_asked: Callable[[], None] = self.stop
        """What to do then; called on the event loop."""

    @property
    def ended(self) -> int:
        """How many jobs have ended here."""
        return self._hand.pace.ended

    def stop(self) -> None:
        """Take no more jobs, and end when those that run are done or the grace time is over."""
        self._stop.set()
        if self._producer is not None:
            self._producer.wake()

    def hurry(self) -> None:
        """Having been told to stop, give back now what still runs."""
        self._hurry.set()

    def trouble(self) -> str | None:
        """What keeps this worker from working at all, if anything does."""
        lost = self._producer is not None and self._keeper is not None and not self._keeper.is_alive
        return "the keeper of leases has ended" if lost else None

    def unready(self) -> str | None:
        """Why this worker currently takes no jobs, if it does not."""
        if self._producer is None:
            return "starting"
        return "stopping" if self._stop.is_set() else self._pulse.trouble() or self._producer.silent()

    async def run(self) -> None:
        """Work until stopped, or until nothing is left to drain."""
        for task in self.app.tasks.values():
            if task.settings.process:
                check_importable(task)
        async with AsyncExitStack() as closing:
            await self._pools.locate()
            await self._asked(self._pools.open())
            closing.push_async_callback(self._pools.close)
            member = await self._asked(self._join(closing))
            runners = self._make_runners()
            self._holding = holding = Holding(self._pools.registry, member, self._queues, on_lost=runners.stop_queues)
            await self._asked(holding.hold())
            source = self._make_source(holding, closing)
            runners.start(self.settings.slots)
            closing.push_async_callback(runners.close)
            loops = self._start_loops(member, holding)
            closing.push_async_callback(lambda: end(loops, within=STOPPING))
            closing.callback(self._stop.set)
            self._producer = Producer(self.settings, source, self._hand, runners, self._stop)
            self.app.events.tell(WorkerStarted(member.number or 0, tuple(self._queues)))
            await self._produce(self._producer)
            self.app.events.tell(WorkerStopping(runners.running))
            reach("worker.stopping")
            left = await runners.wind_up(self.settings.grace, self._hurry)
        self.app.events.tell(WorkerStopped(self.ended))
        if left:
            raise HandlersLeft(
                "a handler went on though it was told to stop; its job was given back"
                if left == 1
                else f"{left} handlers went on though they were told to stop; their jobs were given back",
                hint="let asyncio.CancelledError end an async handler, and do not block the event loop in it",
            )

    async def _asked(self, step: Awaitable[R]) -> R:
        """Do a step of the start, with patience; an outage meanwhile is told as soon as a later one."""
        look = asyncio.get_running_loop().call_later(SILENCE + 0.1, self._pulse.look)
        try:
            with self._pulse.asking():
                return await step
        finally:
            look.cancel()

    async def _produce(self, producer: Producer) -> None:
        """Claim until told to stop; a claim that a silent database does not answer then is given up."""
        producing, told = asyncio.create_task(producer.run()), asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({producing, told}, return_when=asyncio.FIRST_COMPLETED)
            await limited(producing, STOPPING)
        finally:
            await end([producing, told], within=STOPPING)

    @property
    def _queues(self) -> list[str]:
        return list(self.settings.shares)

    async def _join(self, closing: AsyncExitStack) -> Member:
        await declare_tasks(self.app, self._pools.registry)
        await self._announcement.announce()
        facts, kinds = {"queues": self._queues, "slots": self.settings.slots}, self._announcement.runnable
        self._member = member = Member(self._pools.registry, self.settings.name, facts, kinds, self._obey)
        await member.register()
        if self._pools.registry.is_pooled:
            self.app.events.tell(PoolerFound(self.settings.poll))
        closing.push_async_callback(lambda: limited(self._leave(member), GOODBYE))
        return member

    async def _leave(self, member: Member) -> None:
        if self._holding is not None:
            await self._holding.release()
        await member.retire()
        if self.settings.upkeep and 0 < self.ended <= COUNTED:
            await self._count_runs()

    async def _count_runs(self) -> None:
        """Bring the statistics up to date: who looks at them now is not to wait for another worker's upkeep."""
        with suppress(DibsError):
            self._on_chore(await complete(self._pools.upkeep, "roll_up"))

    def _make_runners(self) -> Runners:
        events, dsn = self.app.events, self._pools.dsn
        self._keeper = keeper = Keeper(dsn, events, self._pulse)
        executor = Executor(self.app, self.settings, dsn, keeper.note, self._announcement.runnable)
        return Runners(executor, keeper, Completer(self._pools.outcomes, events, self._hand.settle), events)

    def _make_source(self, holding: Holding, closing: AsyncExitStack) -> Source:
        assert self._keeper is not None
        bell = AsyncBell(self._pools.dsn, self._hear)
        closing.push_async_callback(bell.stop)
        return Source(self._pools.claims, holding, bell, self.app.events, self.settings.poll)

    def _hear(self, marks: Sequence[str]) -> None:
        """A ring names runs that are to stop, or this worker itself: what is true of that a question tells."""
        assert self._keeper is not None
        self._keeper.hear(marks)
        if self._member is not None and self._beating is not None and self._member.is_meant(marks):
            self._beating.wake()

    def _obey(self) -> None:
        self.was_asked = True
        self.app.events.tell(StopAsked(self._member.number or 0 if self._member else 0))
        self.on_asked()

    def _start_loops(self, member: Member, holding: Holding) -> list[asyncio.Task[None]]:
        async def declare() -> float:
            again = await self._announcement.announce_again()
            await member.tell(self._announcement.runnable)
            return again

        steps = {"beat": member.beat, "hold": holding.hold, "fence": holding.fence, "declare": declare}
        made = {name: Loop(name, step, listener=self._on_loop) for name, step in steps.items()}
        self._beating = made["beat"]
        tasks = [asyncio.create_task(loop.run(), name=name) for name, loop in made.items()]
        if self.settings.upkeep:
            upkeep = Service(loops(self._pools.upkeep, self._on_chore))
            tasks.append(asyncio.create_task(upkeep.run(self._stop), name="upkeep"))
        return tasks

    def _on_loop(self, fact: Stepped | Stumbled) -> None:
        if isinstance(fact, Stumbled):
            self.app.events.tell(Trouble(fact.loop, fact.error))

    def _on_chore(self, fact: ChoreDone | ChoreFailed) -> None:
        if not isinstance(fact, ChoreDone):
            self.app.events.tell(Trouble(f"upkeep: {fact.chore}", fact.error))
        elif fact.anything:
            self.app.events.tell(UpkeepDone(fact.chore, sum(fact.counts.values()), dict(fact.counts)))
