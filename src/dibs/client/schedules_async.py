"""``client.schedules``: jobs that recur."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from dibs.client.noun_async import AsyncNoun
from dibs.cron import Cron
from dibs.db import calls
from dibs.errors import UnknownSchedule
from dibs.schedule import rule_json

if TYPE_CHECKING:
    import builtins
    from datetime import datetime

    from dibs.job import NewJob
    from dibs.schedule import Schedule, ScheduleRule, Triggered
    from dibs.states import Answer

SLOTS_AHEAD = 10
"""The number of slots of a new cron schedule that are computed ahead."""


class AsyncSchedules(AsyncNoun):
    """Schedules; reached as ``client.schedules``."""

    async def list(self) -> builtins.list[Schedule]:
        """Return every schedule and its health."""
        return await self._run(calls.schedules.schedules(None))

    async def get(self, name: str) -> Schedule:
        """Return one schedule and its health; raises UnknownSchedule."""
        found = await self._run(calls.schedules.schedules(name))
        if not found:
            raise UnknownSchedule(f"there is no schedule {name!r}", hint="list them: dibs schedules")
        return found[0]

    async def show(self, name: str) -> dict[str, Any]:
        """Return all data about a schedule, with its job and its last runs; raises UnknownSchedule."""
        await self.get(name)
        return await self._run(calls.schedules.show_schedule(name)) or {}

    async def set(self, name: str, job: NewJob | None = None, **rule: Unpack[ScheduleRule]) -> Answer:
        """Make a schedule of this job, or change one: ``created``, ``changed`` or ``unchanged``."""
        answer = await self._run(calls.schedules.set_schedule(name, rule_json(rule), job))
        schedule = await self.get(name)
        if schedule.cron is not None and schedule.next_scheduled is None and schedule.ended_at is None:
            # SQL cannot read cron expressions, so write the first slots. Until then the schedule has none.
            upcoming = Cron(schedule.cron, schedule.zone).upcoming(schedule.handled_until, SLOTS_AHEAD)
            await self._run(calls.schedules.write_slots(name, schedule.revision, upcoming))
        return answer

    async def drop(self, name: str) -> None:
        """Drop a schedule; the jobs it has made stay."""
        await self._run(calls.schedules.drop_schedule(name))

    async def pause(self, name: str, reason: str = "paused by request") -> bool:
        """Stop a schedule from making jobs; false if it was paused before."""
        return await self._run(calls.schedules.pause_schedule(name, reason))

    async def resume(self, name: str) -> bool:
        """Let a schedule go on from now; false if it was not paused."""
        return await self._run(calls.schedules.resume_schedule(name))

    async def trigger(self, name: str, *, force: bool = False) -> Triggered:
        """Make a job of a schedule now; ``force`` does so even if the overlap policy would not."""
        return await self._run(calls.schedules.trigger(name, force))

    async def preview(self, name: str, count: int = 10) -> builtins.list[datetime]:
        """Return the next slots of a schedule."""
        known = await self._run(calls.schedules.preview_schedule(name, count))
        schedule = await self.get(name)
        if schedule.cron is None or schedule.ended_at is not None or len(known) >= count:
            return known
        after = known[-1] if known else schedule.handled_until
        slots = known + Cron(schedule.cron, schedule.zone).upcoming(after, count - len(known))
        return [slot for slot in slots if schedule.end_at is None or slot <= schedule.end_at]
