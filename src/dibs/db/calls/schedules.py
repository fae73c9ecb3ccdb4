"""Schedules: their rules and slots."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec reads it
from typing import TYPE_CHECKING, Any

import msgspec

from dibs.db.calls.call import Call, Row, columns, first, nothing, one_answer, to_json
from dibs.schedule import Schedule, Triggered
from dibs.states import Answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.job import NewJob


class ToRead(msgspec.Struct, frozen=True):
    """A due cron schedule, whose slots after one time and up to another have to be computed."""

    name: str
    cron: str
    zone: str
    after: datetime
    until: datetime
    revision: int


class Fired(msgspec.Struct, frozen=True):
    """The outcome for the slots of one schedule: ``ok``, ``stale`` or ``troubled``."""

    answer: str
    counts: dict[str, int]


def fire(
    name: str, revision: int, slots: Sequence[datetime], upcoming: Sequence[datetime], trouble: str | None
) -> Call[Fired]:
    """Report the due slots of a cron schedule and its next ones; ``trouble`` says why they cannot be computed."""

    def read(rows: list[Row]) -> Fired:
        answer, fired, skipped, missed = rows[0]
        troubled = 1 if answer == "troubled" else 0
        return Fired(answer, {"fired": fired, "skipped": skipped, "missed": missed, "troubled": troubled})

    return Call(
        "select answer, fired, skipped, missed from dibs.fire(%s, %s, %s::timestamptz[], %s::timestamptz[], %s)",
        (name, revision, list(slots), list(upcoming), trouble),
        read,
    )


def write_slots(name: str, revision: int, upcoming: Sequence[datetime]) -> Call[Fired]:
    """Write the next slots of a cron schedule; none is due."""
    return fire(name, revision, [], upcoming, trouble=None)


def declare_schedules(app: str, schedules: Sequence[dict[str, Any]]) -> Call[dict[str, str]]:
    """Declare the schedules of an app in the database."""
    return Call(
        "select name, answer from dibs.declare_schedules(%s, %s::jsonb)",
        (app, to_json(list(schedules))),
        lambda rows: {row[0]: row[1] for row in rows},
    )


def set_schedule(name: str, rule: dict[str, Any], job: NewJob | None) -> Call[Answer]:
    """Make a schedule, or change it."""
    sent = None if job is None else to_json(job.as_json(None, inline=True))
    return Call("select dibs.set_schedule(%s, %s::jsonb, %s::jsonb)", (name, to_json(rule), sent), one_answer)


def drop_schedule(name: str) -> Call[None]:
    """Remove a schedule."""
    return Call("select dibs.drop_schedule(%s)", (name,), nothing, repeatable=False)


def pause_schedule(name: str, reason: str) -> Call[bool]:
    """Pause a schedule."""
    return Call("select dibs.pause_schedule(%s, %s)", (name, reason), first, repeatable=False)


def resume_schedule(name: str) -> Call[bool]:
    """Resume a schedule."""
    return Call("select dibs.resume_schedule(%s)", (name,), first, repeatable=False)


def trigger(name: str, force: bool) -> Call[Triggered]:
    """Make a job of a schedule now."""
    return Call(
        "select job_id, answer from dibs.trigger(%s, %s)",
        (name, force),
        lambda rows: Triggered(rows[0][0], Answer(rows[0][1])),
        repeatable=False,
    )


def preview_schedule(name: str, count: int) -> Call[list[datetime]]:
    """Return the next slots that are known in SQL."""
    return Call("select * from dibs.preview_schedule(%s, %s)", (name, count), lambda rows: [row[0] for row in rows])


def show_schedule(name: str) -> Call[dict[str, Any] | None]:
    """Return all data about a schedule."""
    return Call("select dibs.show_schedule(%s)", (name,), first)


def schedules(name: str | None) -> Call[list[Schedule]]:
    """List every schedule, or the one of that name."""
    return Call(
        f"select {columns(Schedule)} from dibs.schedules where %s::text is null or name = %s order by name",
        (name, name),
        lambda rows: [Schedule(**dict(zip(Schedule.__struct_fields__, row, strict=True))) for row in rows],
    )
