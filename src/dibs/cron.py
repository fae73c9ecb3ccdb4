"""Cron expressions in a time zone: which moments they name, by written rules for the changes of the clock.

cronsim reads the expression and finds matching times on a wall clock that never changes. What such a time means in a
zone whose clock does change is decided here, so that one rule holds for five fields and for six:

- A *fixed-time* expression, whose minute and hour both name times (``30 2 * * *``), happens once for each time it
  names, whatever the clock does. A time that the clock jumps over happens at the jump; one that comes twice, the first
  time.
- A *wildcard* expression, whose minute or hour begins with a star (``*/15 * * * *``), happens whenever the wall clock
  shows a matching time: never in an hour that is jumped over, and twice in an hour that comes twice.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from dibs.errors import DibsError, InvalidSchedule

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
"""The expressions that the short names stand for."""

_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)


class Cron:
    """A cron expression of five fields, or of six with seconds in front, in an IANA time zone.

    >>> berlin = Cron("30 2 * * *", "Europe/Berlin")
    >>> [f"{t:%d %H:%M}Z" for t in berlin.upcoming(datetime(2030, 3, 30, tzinfo=UTC), 3)]
    ['30 01:30Z', '31 01:00Z', '01 00:30Z']
    """

    def __init__(self, expression: str, zone: str = "UTC") -> None:
        self.expression = expression
        self._text = NAMES.get(expression.strip().lower(), expression)
        self._zone = _zone(zone)
        _walls(self._text, datetime(2000, 1, 1))
        minute, hour = self._text.split()[-5:-3]
        self.is_fixed_time = not minute.startswith("*") and not hour.startswith("*")

    def slots(self, after: datetime) -> Iterator[datetime]:
        """Every moment after this one, in order, in UTC."""
        found = self._fixed_times(after) if self.is_fixed_time else self._matching_times(after)
        last = after
        for slot in found:
            if slot > last:
                last = slot
                yield slot

    def upcoming(self, after: datetime, count: int) -> list[datetime]:
        """The next ``count`` moments after this one; fewer when there are no more."""
        return list(islice(self.slots(after), count))

    def due(self, after: datetime, until: datetime, most: int) -> list[datetime]:
        """The moments after one time and up to another, in order; of very many only the newest ``most``."""
        slots = list(islice(takewhile(lambda slot: slot <= until, self.slots(after)), most + 1))
        span = timedelta(minutes=1)
        while len(slots) > most:
            start = max(after, until - span)
            newest = deque(takewhile(lambda slot: slot <= until, self.slots(start)), maxlen=most)
            if len(newest) == most or start == after:
                return list(newest)
            span *= 4
        return slots

    def _fixed_times(self, after: datetime) -> Iterator[datetime]:
        for wall in _walls(self._text, self._wall(after)):
            yield self._moment(wall)

    def _moment(self, wall: datetime) -> datetime:
        """Return the moment when a wall clock first shows this time; that of the jump, if it never does."""
        before, then = (wall.replace(tzinfo=self._zone, fold=fold).utcoffset() for fold in (0, 1))
        assert before is not None
        assert then is not None
        moment = (wall - before).replace(tzinfo=UTC)
        if before >= then:
            return moment
        return self._first_change((wall - then).replace(tzinfo=UTC), moment) or moment

    def _matching_times(self, after: datetime) -> Iterator[datetime]:
        """Between two changes of the clock the wall is a fixed distance from UTC, so walk from change to change."""
        start, wall = after, self._wall(after)
        while True:
            offset = self._offset(start)
            for match in _walls(self._text, wall):
                slot = (match - offset).replace(tzinfo=UTC)
                change = self._first_change(start, slot)
                if change is not None:
                    break
                start = slot
                yield slot
            else:
                return
            start = change
            wall = self._wall(change) - _SECOND

    def _first_change(self, start: datetime, end: datetime) -> datetime | None:
        """The first moment after ``start`` and up to ``end`` at which the clock was changed."""
        offset = self._offset(start)
        while start < end:
            step = min(start + _DAY, end)
            if self._offset(step) != offset:
                return self._change_between(start, step)
            start = step
        return None

    def _change_between(self, before: datetime, after: datetime) -> datetime:
        offset = self._offset(before)
        low, high = int(before.timestamp()), -int(-after.timestamp() // 1)
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset(datetime.fromtimestamp(middle, UTC)) == offset:
                low = middle
            else:
                high = middle
        return datetime.fromtimestamp(high, UTC)

    def _offset(self, moment: datetime) -> timedelta:
        offset = moment.astimezone(self._zone).utcoffset()
        assert offset is not None
        return offset

    def _wall(self, moment: datetime) -> datetime:
        return moment.astimezone(self._zone).replace(tzinfo=None, fold=0)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidSchedule(
            f"there is no time zone {name!r}", hint="give an IANA name such as Europe/Berlin"
        ) from None


def _walls(expression: str, after: datetime) -> Iterator[datetime]:
    """The matching times of a wall clock that never changes."""
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        raise DibsError("cron needs an extra that is not installed", hint="pip install 'dibs[schedules]'") from None
    try:
        return CronSim(expression, after)
    except CronSimError as error:
        raise InvalidSchedule(
            f"{expression!r} is not a cron expression: {error}",
            hint="write five fields (minute, hour, day, month, weekday), or six with seconds in front",
        ) from None
