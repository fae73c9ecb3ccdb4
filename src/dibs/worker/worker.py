"""Puts the parts of a worker together, runs them, and stops without losing a job."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, TypeVar

from dibs.client.find import find_database
from dibs.cluster import Holding, Member
from dibs.db.listen import AsyncBell
from dibs.errors import DibsError, HandlersLeft
from dibs.events import PoolerFound, StopAsked, Trouble, UpkeepDone, WorkerStarted, WorkerStopped, WorkerStopping
from dibs.maintenance import ChoreDone, chore_loops, do_fully
from dibs.runtime import Loop, Service, StepFailed, end, wait_at_most
from dibs.runtime.points import reach
from dibs.worker.announce import Announcement, declare_tasks
from dibs.worker.completer import Completer
from dibs.worker.executor import Executor
from dibs.worker.in_flight import InFlight
from dibs.worker.keeper import Keeper
from dibs.worker.pools import Pools
from dibs.worker.processes import check_importable
from dibs.worker.producer import Producer
from dibs.worker.pulse import OUTAGE_AFTER, Pulse
from dibs.worker.runners import Runners
from dibs.worker.shares import Shares
from dibs.worker.source import Source

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from dibs.client.app import App
    from dibs.maintenance import ChoreFailed
    from dibs.runtime import StepDone
    from dibs.worker_settings import WorkerSettings

R = TypeVar("R")

END_WITHIN = 1.0
"""Seconds that an unanswered claim, or a loop, has to end after a stop."""
MOST_COUNTED = 10_000
"""A worker that ran more jobs than this leaves counting them to the upkeep of another one."""
LEAVE_WITHIN = 2.0
"""Seconds to try to leave the registry. Others notice anyway."""


class Worker:
    """Runs the tasks of an app until told to stop."""

    def __init__(self, app: App, settings: WorkerSettings) -> None:
        self.app = app
        self.settings = settings
        self._pools = Pools(lambda: find_database(app.dsn))
        self._in_flight = InFlight(Shares(settings.shares))
        self._pulse = Pulse(app.events)
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._announcement = Announcement(app, self._pools.registry, settings.name)
        self._keeper: Keeper | None = None
        self._producer: Producer | None = None
        self._holding: Holding | None = None
        self._member: Member | None = None
        self._beat_loop: Loop | None = None
        self.was_stopped_by_operator = False
        """True once an operator has asked this worker to stop, such as by ``dibs workers stop``."""
        self.on_operator_stop: Callable[[], None] = self.stop
        """Called on the event loop when an operator asks this worker to stop."""

    @property
    def ended(self) -> int:
        """The number of jobs that this worker has claimed and no longer holds: run, given back, parked or lost."""
        return self._in_flight.pace.ended

    def stop(self) -> None:
        """Claim no more jobs, and end when the running ones have ended or the grace time is over."""
        self._stop.set()
        if self._producer is not None:
            self._producer.wake()

    def hurry(self) -> None:
        """After :meth:`stop`, give back the running jobs at once."""
        self._hurry.set()

    def trouble(self) -> str | None:
        """Why this worker cannot work at all, if so."""
        if self._producer is None or self._keeper is None or self._keeper.is_alive:
            return None
        return "the keeper of leases has ended"

    def unready(self) -> str | None:
        """Why this worker currently takes no jobs, if so."""
        if self._producer is None:
            return "starting"
        return "stopping" if self._stop.is_set() else self._pulse.trouble() or self._producer.trouble()

    async def run(self) -> None:
        """Work until stopped, or until nothing is left to drain."""
        for task in self.app.tasks.values():
            if task.settings.process:
                check_importable(task)
        # Closed in reverse: the loops, the runners (which send the last ends), the bell, the registry, the connections.
        async with AsyncExitStack() as closing:
            await self._pools.locate()
            await self._start(self._pools.open())
            closing.push_async_callback(self._pools.close)
            member = await self._join(closing)
            runners = self._make_runners()
            self._holding = holding = Holding(self._pools.registry, member, self._queues, on_lost=runners.stop_queues)
            await self._start(holding.hold())
            source = self._make_source(holding, closing)
            runners.start(self.settings.slots)
            closing.push_async_callback(runners.close)
            tasks = self._start_loops(member, holding)
            closing.push_async_callback(lambda: end(tasks, within=END_WITHIN))
            closing.callback(self._stop.set)
            self._producer = Producer(self.settings, source, self._in_flight, runners, self._stop)
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

    async def _start(self, step: Awaitable[R]) -> R:
        """Do a step of the start. Its calls have patience, but report an outage as soon as when the worker runs."""
        look = asyncio.get_running_loop().call_later(OUTAGE_AFTER + 0.1, self._pulse.report_outage)
        try:
            with self._pulse.calling():
                return await step
        finally:
            look.cancel()

    async def _produce(self, producer: Producer) -> None:
        """Claim until told to stop. Then abandon a claim that a silent database does not answer."""
        producing, stopped = asyncio.create_task(producer.run()), asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({producing, stopped}, return_when=asyncio.FIRST_COMPLETED)
            await wait_at_most(producing, END_WITHIN)
        finally:
            await end([producing, stopped], within=END_WITHIN)

    @property
    def _queues(self) -> list[str]:
        return list(self.settings.shares)

    async def _join(self, closing: AsyncExitStack) -> Member:
        await self._start(declare_tasks(self.app, self._pools.registry))
        await self._start(self._announcement.announce())
        facts, kinds = {"queues": self._queues, "slots": self.settings.slots}, self._announcement.runnable
        self._member = member = Member(self._pools.registry, self.settings.name, facts, kinds, self._obey_operator)
        await self._start(member.register())
        if self._pools.registry.is_pooled:
            self.app.events.tell(PoolerFound(self.settings.poll))
        closing.push_async_callback(lambda: wait_at_most(self._leave(member), LEAVE_WITHIN))
        return member

    async def _leave(self, member: Member) -> None:
        try:
            if self._holding is not None:
                await self._holding.release()
            await member.retire()
        except DibsError as error:
            self.app.events.tell(Trouble("leaving the registry", error))
            return
        if self.settings.upkeep and 0 < self.ended <= MOST_COUNTED:
            await self._count_runs()

    async def _count_runs(self) -> None:
        """Bring the statistics up to date now, rather than with the next upkeep of another worker."""
        with suppress(DibsError):
            self._on_chore(await do_fully(self._pools.upkeep, "roll_up"))

    def _make_runners(self) -> Runners:
        events, dsn = self.app.events, self._pools.dsn
        self._keeper = keeper = Keeper(dsn, events, self._pulse)
        executor = Executor(self.app, self.settings, dsn, keeper.note_progress, self._announcement.runnable)
        return Runners(executor, keeper, Completer(self._pools.outcomes, events, self._in_flight.remove), events)

    def _make_source(self, holding: Holding, closing: AsyncExitStack) -> Source:
        assert self._keeper is not None
        bell = AsyncBell(self._pools.dsn, self._on_stop_marks)
        closing.push_async_callback(bell.stop)
        return Source(self._pools.claims, holding, bell, self.app.events, self.settings.poll)

    def _on_stop_marks(self, marks: Sequence[str]) -> None:
        """Ask the database at once whether the runs, or this worker, that a ring names are to stop.

        The ring itself stops nothing, since every login may ring.
        """
        assert self._keeper is not None
        self._keeper.hear(marks)
        if self._member is not None and self._beat_loop is not None and self._member.is_marked(marks):
            self._beat_loop.wake()

    def _obey_operator(self) -> None:
        self.was_stopped_by_operator = True
        self.app.events.tell(StopAsked(self._member.number or 0 if self._member else 0))
        self.on_operator_stop()

    def _start_loops(self, member: Member, holding: Holding) -> list[asyncio.Task[None]]:
        async def declare() -> float:
            retry_in = await self._announcement.announce_again()
            await member.set_kinds(self._announcement.runnable)
            return retry_in

        steps = {"beat": member.beat, "hold": holding.hold, "fence": holding.fence, "declare": declare}
        loops = {name: Loop(name, step, listener=self._on_loop) for name, step in steps.items()}
        self._beat_loop = loops["beat"]
        tasks = [asyncio.create_task(loop.run(), name=name) for name, loop in loops.items()]
        if self.settings.upkeep:
            upkeep = Service(chore_loops(self._pools.upkeep, self._on_chore))
            tasks.append(asyncio.create_task(upkeep.run(self._stop), name="upkeep"))
        return tasks

    def _on_loop(self, fact: StepDone | StepFailed) -> None:
        if isinstance(fact, StepFailed):
            self.app.events.tell(Trouble(fact.loop, fact.error))

    def _on_chore(self, fact: ChoreDone | ChoreFailed) -> None:
        if not isinstance(fact, ChoreDone):
            self.app.events.tell(Trouble(f"upkeep: {fact.chore}", fact.error))
        elif fact.anything:
            self.app.events.tell(UpkeepDone(fact.chore, sum(fact.counts.values()), dict(fact.counts)))
