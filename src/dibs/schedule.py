"""Schedules as values: when work recurs, and what it has led to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

import msgspec

from dibs.cron import Cron
from dibs.errors import InvalidSchedule
from dibs.policy import Seconds, moment, seconds

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from uuid import UUID

    from dibs.job import NewJob
    from dibs.states import Answer

Overlap = Literal["skip", "queue", "allow", "cancel"]
"""The rule for a slot that comes while an earlier run goes on."""

CatchUp = Literal["none", "last"] | int
"""The number of missed slots to make up for."""

OnFailure = Literal["retry", "next"]
"""The rule for a failed run: try it again, or leave it to the next slot."""

RULES = ("cron", "interval", "fixed_rate", "fixed_delay", "once")
_DURATIONS = frozenset({"interval", "fixed_rate", "fixed_delay", "jitter", "grace"})
_MOMENTS = frozenset({"once", "start_at", "end_at"})


class ScheduleRule(TypedDict, total=False):
    """The settings of a schedule: one rule, and how to follow it. Omitted settings stay as they are."""

    cron: str
    interval: Seconds
    fixed_rate: Seconds
    fixed_delay: Seconds
    once: datetime
    zone: str
    start_at: datetime | None
    end_at: datetime | None
    jitter: Seconds
    overlap: Overlap
    catch_up: CatchUp
    grace: Seconds
    on_failure: OnFailure
    pause_after: int | None


def rule_json(rule: ScheduleRule) -> dict[str, Any]:
    """Return the form that ``set_schedule`` takes. Refuse a cron expression or a zone that cannot be read."""
    if "cron" in rule:
        Cron(rule["cron"], rule.get("zone", "UTC"))
    return {name: _plain(name, value) for name, value in rule.items()}


def _plain(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in _MOMENTS:
        return moment(name, value, InvalidSchedule).isoformat()
    return seconds(value) if name in _DURATIONS else value


class Declared(msgspec.Struct, frozen=True):
    """A schedule that an app declares in its code."""

    name: str
    rule: dict[str, Any]
    job: NewJob

    def as_json(self) -> dict[str, Any]:
        """Return the form that ``declare_schedules`` takes."""
        return {"name": self.name, "rule": self.rule, "job": self.job.as_json(None, inline=True)}


class Triggered(msgspec.Struct, frozen=True):
    """The result of a trigger: ``triggered`` with the job's id, ``skipped``, or ``duplicate``."""

    job_id: UUID | None
    answer: Answer


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule: its rule, its plan and its health."""

    name: str
    app: str | None
    declared_by: str
    queue: str
    kind: str
    status: Literal["healthy", "failing", "paused", "ended", "retired"]
    status_message: str | None
    rule: str
    cron: str | None
    every: timedelta | None
    once: datetime | None
    zone: str
    start_at: datetime | None
    end_at: datetime | None
    jitter: timedelta
    overlap: Overlap
    catch_up: int
    grace: timedelta
    on_failure: OnFailure
    pause_after: int | None
    next_scheduled: datetime | None
    next_attempt: datetime | None
    held: list[datetime]
    open_runs: int
    last_slot: datetime | None
    last_job: UUID | None
    last_attempt: datetime | None
    last_success: datetime | None
    failed_attempts: int
    failed_runs: int
    fired: int
    succeeded: int
    skipped: int
    missed: int
    last_duration: timedelta | None
    average_duration: timedelta | None
    total_duration: timedelta
    average_hour: timedelta | None
    average_day: timedelta | None
    average_week: timedelta | None
    paused_at: datetime | None
    pause_reason: str | None
    ended_at: datetime | None
    retired_at: datetime | None
    created_at: datetime
    revision: int
    handled_until: datetime

    @property
    def timing(self) -> str:
        """The rule in a few words, such as ``cron 0 3 * * * Europe/Berlin``."""
        if self.rule == "cron":
            return f"cron {self.cron} {self.zone}"
        return f"{self.rule} {self.once.isoformat() if self.once else self.every}"
