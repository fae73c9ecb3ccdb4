"""Schedules: their rules, their slots, and what happens to them."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec reads it
from typing import TYPE_CHECKING, Any

import msgspec

from dibs.db.calls.call import Call, columns, first, nothing, one_answer, to_json
from dibs.schedule import Schedule, Triggered
from dibs.states import Answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.job import NewJob


class ToRead(msgspec.Struct, frozen=True):
    """A cron schedule that is due: the slots after one time and up to another are to be computed."""

    name: str
    cron: str
    zone: str
    after: datetime
    until: datetime
    revision: int


class Fired(msgspec.Struct, frozen=True):
    """What happened to the slots of one schedule: ``ok``, ``stale`` or ``troubled``."""

    answer: str
    counts: dict[str, int]


def fire(
    name: str, revision: int, slots: Sequence[datetime], upcoming: Sequence[datetime], trouble: str | None
) -> Call[Fired]:
    """Tell the slots of a cron schedule that have come, and the next ones."""
    return Call(
        "select answer, fired, skipped, missed from dibs.fire(%s, %s, %s::timestamptz[], %s::timestamptz[], %s)",
        (name, revision, list(slots), list(upcoming), trouble),
        lambda rows: Fired(
            rows[0][0],
            {
                "fired": rows[0][1],
                "skipped": rows[0][2],
                "missed": rows[0][3],
                "troubled": int(rows[0][0] == "troubled"),
            },
        ),
    )


def declare_schedules(app: str, schedules: Sequence[dict[str, Any]]) -> Call[dict[str, str]]:
    """Bring the schedules of an app to the database."""
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
    """Let a schedule make no jobs for now."""
    return Call("select dibs.pause_schedule(%s, %s)", (name, reason), first, repeatable=False)


def resume_schedule(name: str) -> Call[bool]:
    """Let it go on."""
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
    """The next slots, as far as SQL knows them."""
    return Call("select * from dibs.preview_schedule(%s, %s)", (name, count), lambda rows: [row[0] for row in rows])


def show_schedule(name: str) -> Call[dict[str, Any] | None]:
    """Everything known of a schedule."""
    return Call("select dibs.show_schedule(%s)", (name,), first)


def schedules(name: str | None) -> Call[list[Schedule]]:
    """Every schedule, or the one of that name."""
    return Call(
        f"select {columns(Schedule)} from dibs.schedules where %s::text is null or name = %s order by name",
        (name, name),
        lambda rows: [Schedule(**dict(zip(Schedule.__struct_fields__, row, strict=True))) for row in rows],
    )
