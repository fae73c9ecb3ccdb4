"""Durations as people write and read them."""

from __future__ import annotations

import re
from datetime import timedelta

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def duration(text: str) -> timedelta:
    """Read ``90``, ``90s``, ``5m``, ``1h30m``, ``1d``, ``500ms``; a bare number is seconds.

    >>> duration("1h30m")
    datetime.timedelta(seconds=5400)
    """
    asked = text.strip().lower()
    if _NUMBER.fullmatch(asked):
        return _span(float(asked), text)
    parts = _PART.findall(asked)
    if not parts or "".join(n + unit for n, unit in parts) != asked:
        raise ValueError(f"{text!r} is not a duration; write 90s, 5m, 2h, 1d or 500ms")
    return _span(sum(float(n) * UNITS[unit] for n, unit in parts), text)


def rate(text: str) -> float:
    """Read ``50``, ``50/s``, ``50/m`` or ``50/h`` as how many per second; a bare number is per second.

    >>> rate("30/m")
    0.5
    """
    number, sign, unit = text.strip().lower().partition("/")
    per = UNITS.get(unit.strip() if sign else "s", 0.0)
    if not _NUMBER.fullmatch(number.strip()) or not float(number) or not per:
        raise ValueError(f"{text!r} is not a rate; write 50/m for fifty a minute, or 2/s, 1000/h")
    return float(number) / per


def _span(seconds: float, text: str) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise ValueError(f"{text!r} is too long a time") from None


def exact(span: timedelta) -> str:
    """A duration that is read again as the same, without a space.

    >>> exact(timedelta(days=1, seconds=5400.25))
    '1d1h30m250ms'
    """
    left = span // timedelta(microseconds=1)
    parts = []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, int(UNITS[unit] * 1_000_000))
        if count:
            parts.append(f"{count}{unit}")
    if left:
        parts.append(f"{left / 1000:g}ms")
    return "".join(parts) or "0s"


def spoken(span: timedelta) -> str:
    """The two largest units of a duration.

    >>> spoken(timedelta(seconds=5400))
    '1h 30m'
    """
    seconds = abs(span.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms" if seconds else "0s"
    if seconds < 60:
        return f"{seconds:.3g}s"
    left = round(seconds)
    parts = []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, int(UNITS[unit]))
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def size(count: float) -> str:
    """A number of bytes in its largest unit.

    >>> size(123_456_789)
    '123 MB'
    """
    units = ["TB", "GB", "MB", "kB", "B"]
    while count >= 999.5 and len(units) > 1:
        count /= 1000
        units.pop()
    return f"{count:.3g} {units[-1]}"
