"""The rules for changes of the clock, told a second time and as plainly as can be: step by step."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

STEP = timedelta(minutes=15)


def numbers(field: str, below: int) -> set[int]:
    """What a field with stars, lists, ranges and steps matches."""
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = ("0", "", str(below - 1)) if span == "*" else span.partition("-")
        found |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


def expected_slots(cron: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """Every slot from ``start`` and before ``end`` of an expression that names no days, and quarters of an hour."""
    minute_field, hour_field, *days = cron.split()
    assert days == ["*", "*", "*"]
    minutes, hours = numbers(minute_field, 60), numbers(hour_field, 24)
    wildcard = minute_field.startswith("*") or hour_field.startswith("*")
    clock, found, seen = ZoneInfo(zone), set(), set()
    moment = start - timedelta(days=1)
    wall = moment.astimezone(clock).replace(tzinfo=None)
    while moment < end:
        last, wall = wall, moment.astimezone(clock).replace(tzinfo=None)
        # What the hands passed over since the last step: one step, or a whole gap, or nothing when they were set back.
        passed = [wall] if wildcard else [last + n * STEP for n in range(1, (wall - last) // STEP + 1)]
        for shown in passed:
            if shown.minute in minutes and shown.hour in hours and (wildcard or shown not in seen):
                seen.add(shown)
                found.add(moment)
        moment += STEP
    return sorted(moment.astimezone(UTC) for moment in found if moment >= start)
