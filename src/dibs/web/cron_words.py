"""The rule of a schedule in words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dibs.cron import NAMES
from dibs.web.words import span, time_of

if TYPE_CHECKING:
    from dibs.schedule import Schedule

DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "", "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_NUMBER = re.compile(r"\d{1,2}")


def rule_in_words(schedule: Schedule) -> str:
    """Say in words when a schedule runs."""
    if schedule.cron is not None:
        return cron_in_words(schedule.cron)
    if schedule.once is not None:
        return f"once, at {time_of(schedule.once).striptags()}"
    phrases = {"interval": "every {}", "fixed_rate": "every {}", "fixed_delay": "{} after each run"}
    return phrases.get(schedule.rule, "{}").format(span(schedule.every))


def cron_in_words(expression: str) -> str:
    """Return a cron expression in words, or unchanged if words would be too long.

    >>> cron_in_words("30 2 * * 1-5")
    'at 02:30, Monday to Friday'
    >>> cron_in_words("*/15 * * * *")
    'every 15 minutes'
    >>> cron_in_words("0 3 1 * 1")
    'at 03:00, on day 1 of the month or on Mondays'
    """
    text = NAMES.get(expression.strip().lower(), expression)
    fields = text.split()
    if len(fields) == 6 and fields[0] == "0":
        fields = fields[1:]
    if len(fields) != 5:
        return expression
    minute, hour, day, month, weekday = fields
    parts = [_time(minute, hour), _weekdays(weekday), _days(day), _months(month)]
    if any(part is None for part in parts):
        return expression
    if parts[1] and parts[2]:
        parts[1:3] = [f"{parts[2]} or {parts[1]}"]  # With both, cron means either.
    return ", ".join(part for part in parts if part)


def _time(minute: str, hour: str) -> str | None:
    if _NUMBER.fullmatch(minute) and all(_NUMBER.fullmatch(h) for h in hour.split(",")):
        return "at " + ", ".join(f"{int(h):02}:{int(minute):02}" for h in hour.split(","))
    if hour == "*":
        if minute == "*":
            return "every minute"
        if (minutes := _step(minute, 60)) is not None:
            return f"every {minutes} minutes"
        if _NUMBER.fullmatch(minute):
            return f"every hour at :{int(minute):02}"
    if (hours := _step(hour, 24)) is not None and _NUMBER.fullmatch(minute):
        return f"every {hours} hours at :{int(minute):02}"
    return None


def _step(field: str, whole: int) -> int | None:
    """Return the number of a step such as ``*/15``; None if its distances differ, as those of ``*/40`` do."""
    if not field.startswith("*/") or not _NUMBER.fullmatch(field[2:]):
        return None
    step = int(field[2:])
    return step if step and whole % step == 0 else None


def _weekdays(field: str) -> str | None:
    names = re.fullmatch(r"([0-7])(?:-([0-7]))?", field)
    if field == "*":
        return ""
    if names:
        first = DAYS[int(names[1])]
        return f"{first} to {DAYS[int(names[2])]}" if names[2] else f"on {first}s"
    if re.fullmatch(r"[0-7](,[0-7])+", field):
        return "on " + ", ".join(DAYS[int(n)] for n in field.split(","))
    return None


def _days(field: str) -> str | None:
    if field == "*":
        return ""
    return f"on day {int(field)} of the month" if _NUMBER.fullmatch(field) else None


def _months(field: str) -> str | None:
    if field == "*":
        return ""
    return f"in {MONTHS[int(field)]}" if _NUMBER.fullmatch(field) and 1 <= int(field) <= 12 else None
