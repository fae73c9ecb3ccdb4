"""The client's verbs on schedules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from dibs.cron import Cron
from dibs.db import calls
from dibs.errors import UnknownSchedule
from dibs.schedule import rule_json

if TYPE_CHECKING:
    from datetime import datetime

    from dibs.db.calls import Call
    from dibs.job import NewJob
    from dibs.schedule import Schedule, ScheduleRule, Triggered
    from dibs.states import Answer

R = TypeVar("R")

WRITTEN = 10
"""How many of the next slots of a new cron schedule are written down at once."""


class AsyncScheduling(ABC):
    """What a client can do with schedules."""

    @abstractmethod
    async def _run(self, call: Call[R]) -> R: ...

    async def set_schedule(self, name: str, job: NewJob | None = None, **rule: Unpack[ScheduleRule]) -> Answer:
        """Make a schedule of this job, or change one: ``created``, ``changed`` or ``unchanged``."""
        answer = await self._run(calls.schedules.set_schedule(name, rule_json(rule), job))
        now = await self.schedule(name)
        if now.cron is not None and now.next_scheduled is None and now.ended_at is None:
            upcoming = Cron(now.cron, now.zone).upcoming(now.handled_until, WRITTEN)
            await self._run(calls.schedules.fire(name, now.revision, [], upcoming, None))
        return answer

    async def unset_schedule(self, name: str) -> None:
        """Remove a schedule; the jobs it has made stay."""
        await self._run(calls.schedules.unset_schedule(name))

    async def pause_schedule(self, name: str, reason: str = "paused by request") -> bool:
        """Let a schedule make no jobs; whether it was running before."""
        return await self._run(calls.schedules.pause_schedule(name, reason))

    async def resume_schedule(self, name: str) -> bool:
        """Let a schedule go on from now; whether it was paused."""
        return await self._run(calls.schedules.resume_schedule(name))

    async def trigger(self, name: str, *, force: bool = False) -> Triggered:
        """Make a job of a schedule now; ``force`` does so even if the overlap policy would not."""
        return await self._run(calls.schedules.trigger(name, force))

    async def schedules(self) -> list[Schedule]:
        """Every schedule and its health."""
        return await self._run(calls.schedules.schedules(None))

    async def schedule(self, name: str) -> Schedule:
        """One schedule and its health; raises UnknownSchedule."""
        found = await self._run(calls.schedules.schedules(name))
        if not found:
            raise UnknownSchedule(f"there is no schedule {name!r}", hint="list them: dibs schedules")
        return found[0]

    async def show_schedule(self, name: str) -> dict[str, Any]:
        """Everything known of a schedule, with its job and its last runs; raises UnknownSchedule."""
        await self.schedule(name)
        return await self._run(calls.schedules.show_schedule(name)) or {}

    async def preview_schedule(self, name: str, count: int = 10) -> list[datetime]:
        """The next slots of a schedule."""
        known = await self._run(calls.schedules.preview_schedule(name, count))
        now = await self.schedule(name)
        if now.cron is None or now.ended_at is not None or len(known) >= count:
            return known
        slots = known or Cron(now.cron, now.zone).upcoming(now.handled_until, 1)
        slots += Cron(now.cron, now.zone).upcoming(slots[-1], count - len(slots)) if slots else []
        return [slot for slot in slots if now.end_at is None or slot <= now.end_at]
