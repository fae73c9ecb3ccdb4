"""Values in words, for people."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from markupsafe import Markup, escape

from dibs.traces import said
from dibs.units import spoken

LONGEST = 20_000
"""The number of characters of a payload or an error on a page; the raw document has the rest."""
NOTHING = "\u2013"
_INTERVAL = re.compile(r"(?:(\d+) days? )?(\d+):(\d\d):(\d\d(?:\.\d+)?)")


def number(value: float | None) -> str:
    """Format a count with separated thousands.

    >>> number(1234567)
    '1,234,567'
    """
    return NOTHING if value is None else f"{value:,.0f}"


def span(value: timedelta | float | None) -> str:
    """Format a duration in its one or two largest units.

    >>> span(5400.0)
    '1h 30m'
    """
    if value is None:
        return NOTHING
    return spoken(value if isinstance(value, timedelta) else timedelta(seconds=value))


def interval(text: str | None) -> timedelta | None:
    """Return a duration, which a JSON document of the database has as text.

    >>> interval("2 days 01:00:00.5")
    datetime.timedelta(days=2, seconds=3600, microseconds=500000)
    """
    found = _INTERVAL.fullmatch(text or "")
    if found is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


def moment(value: datetime | str | None) -> datetime | None:
    """Return a time, which a JSON document has as text."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def when(value: datetime | str | None, now: datetime) -> Markup:
    """Say how long ago a time was, or how far ahead it is; the time itself is a tooltip."""
    at = moment(value)
    if at is None:
        return Markup('<span class="none">{}</span>').format(NOTHING)
    distance = span(abs(now - at))
    words = f"in {distance}" if at > now else "now" if distance == "0s" else f"{distance} ago"
    return time_of(at, words)


def time_of(at: datetime, words: str | None = None) -> Markup:
    """Return a time in words; the exact time is a tooltip."""
    exact = f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(at.isoformat(), exact, words or exact)


def pretty(value: Any) -> str:
    """Format a JSON value with indentation; a string as it is."""
    return value if isinstance(value, str) else pretty_json(value)


def pretty_json(value: Any) -> str:
    """Format a JSON value with indentation, as JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def clipped(text: str, longest: int = LONGEST) -> str:
    """Cut the middle out of a very long text."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n\n… {len(text) - 2 * half:,} characters are left out here …\n\n{text[-half:]}"


def first_line(text: str | None) -> str:
    """Return the message of an error without its traceback."""
    return said(text or "")


def state(name: str) -> Markup:
    """Return a state as a coloured word."""
    return Markup('<span class="state {0}">{0}</span>').format(escape(name))


def bar(progress: Any) -> Markup:
    """Return the progress of a run as a bar; empty if it reports none."""
    known = progress if isinstance(progress, dict) else {}
    done, of = known.get("done"), known.get("of")
    if not isinstance(done, int | float) or not isinstance(of, int | float) or of <= 0:
        return Markup()
    return Markup('<progress value="{}" max="{}"></progress>').format(done, of)
