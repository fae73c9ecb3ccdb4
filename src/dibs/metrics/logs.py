"""Writes events into a log. All log lines of a worker come from here."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Literal, TextIO

from dibs.errors import InvalidArgument
from dibs.events import (
    Event,
    Events,
    JobsClaimed,
    KindUnknown,
    RunEnded,
    Trouble,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from dibs.metrics.formats import JsonFormat, TextFormat
from dibs.metrics.lines import LEVELS, Line, line_of
from dibs.states import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

SUMMARY = 10.0
"""What was claimed and ended is summed up in one line, at most this often in seconds."""
UNKNOWN = 60.0
"""An unknown kind is logged at most once in this many seconds."""

_FORMATS: dict[str, Callable[[], logging.Formatter]] = {"text": TextFormat, "json": JsonFormat}


def log_events(
    events: Events,
    format: Literal["text", "json", "none"] = "text",
    *,
    level: int | str = logging.INFO,
    stream: TextIO | None = None,
) -> EventLog:
    """Write a line for each event to the logger ``dibs``, and that to ``stream`` (standard error without one).

    With the format ``none`` only the records are made, and your own set-up of logging decides where they go and how
    they look; the facts are in their attribute ``dibs``. Events below ``level`` are not subscribed to and cost nothing.
    """
    if format not in {*_FORMATS, "none"}:
        raise InvalidArgument(f"a log is written as text, json or none, not as {format!r}")
    handler = None
    if format != "none":
        handler = logging.StreamHandler(stream)
        handler.setFormatter(_FORMATS[format]())
    return EventLog(events, _level(level), handler)


def _level(level: int | str) -> int:
    number = logging.getLevelNamesMapping().get(level.upper()) if isinstance(level, str) else level
    if number is None:
        raise InvalidArgument(f"there is no log level {level!r}", hint="say debug, info, warning or error")
    return number


class EventLog:
    """The subscription of a log, until closed."""

    def __init__(self, events: Events, level: int, handler: logging.Handler | None) -> None:
        self._events = events
        self._level = level
        self._logger = logging.getLogger("dibs")
        self._worker: int | None = None
        self._claims = _Tally()
        self._seldom = _Seldom()
        self._handler = handler
        self._before = (self._logger.level, self._logger.propagate)
        if handler is not None:
            self._logger.addHandler(handler)
            self._logger.setLevel(level)
            self._logger.propagate = False
        self._subscribed = [(kind, self._subscriber(kind)) for kind, most in LEVELS.items() if most >= level]
        for kind, subscriber in self._subscribed:
            events.on(kind, subscriber)

    def close(self) -> None:
        """Write no more."""
        for kind, subscriber in self._subscribed:
            self._events.off(kind, subscriber)
        if self._handler is not None:
            self._logger.removeHandler(self._handler)
            self._logger.level, self._logger.propagate = self._before
            self._handler.flush()

    def _subscriber(self, kind: type[Event]) -> Callable[[Any], None]:
        special: dict[type[Event], Callable[[Any], None]] = {
            JobsClaimed: self._claimed,
            RunEnded: self._ended,
            KindUnknown: self._unknown,
            Trouble: self._trouble,
            WorkerStarted: self._started,
            WorkerStopping: self._last,
            WorkerStopped: self._last,
        }
        return special.get(kind, self._tell)

    def _tell(self, event: Event) -> None:
        self._write(event, line_of(event))

    def _write(self, event: Event, line: Line, error: BaseException | None = None) -> None:
        if line.level >= self._level:
            facts = {"event": type(event).__name__, **line.facts}
            if self._worker is not None:
                facts["worker"] = self._worker
            self._logger.log(line.level, "%s", line.text, extra={"dibs": facts}, exc_info=error)

    def _started(self, event: WorkerStarted) -> None:
        self._worker = event.number
        self._tell(event)

    def _claimed(self, event: JobsClaimed) -> None:
        if self._level <= logging.DEBUG:
            self._tell(event)
        self._claims.claimed(event.count)
        if self._claims.waits and self._seldom.now(JobsClaimed, SUMMARY) is not None:
            self._sum_up(event)

    def _ended(self, event: RunEnded) -> None:
        # The hot one: a success is only counted, unless each is to be logged.
        self._claims.ended(event.outcome)
        if event.outcome is not Outcome.SUCCEEDED or self._level <= logging.DEBUG:
            self._tell(event)

    def _last(self, event: WorkerStopping | WorkerStopped) -> None:
        if self._claims.waits and self._level <= logging.INFO:
            self._sum_up(event)
        self._tell(event)

    def _sum_up(self, event: Event) -> None:
        facts = self._claims.take()
        text = (
            f"claimed {facts['claimed']} jobs in {facts['claims']} claims;"
            f" {facts['succeeded']} runs succeeded, {facts['others']} ended otherwise"
        )
        self._write(event, Line(logging.INFO, text, {"event": "Summary", **facts}))

    def _unknown(self, event: KindUnknown) -> None:
        unsaid = self._seldom.now((KindUnknown, event.job.kind), UNKNOWN)
        if unsaid is not None:
            line = line_of(event)
            self._write(
                event, line if not unsaid else Line(line.level, f"{line.text}; {unsaid} more before", line.facts)
            )

    def _trouble(self, event: Trouble) -> None:
        self._write(event, line_of(event), event.error if self._level <= logging.DEBUG else None)


class _Tally:
    """What was claimed and how it ended since the last line about it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(("claims", "claimed", "succeeded", "others"), 0)

    @property
    def waits(self) -> bool:
        """Whether there is anything to say."""
        return any(count for name, count in self._counts.items() if name != "claims")

    def claimed(self, count: int) -> None:
        with self._lock:
            self._counts["claimed"] += count
            self._counts["claims"] += count > 0

    def ended(self, outcome: Outcome) -> None:
        with self._lock:
            self._counts["succeeded" if outcome is Outcome.SUCCEEDED else "others"] += 1

    def take(self) -> dict[str, int]:
        with self._lock:
            counts, self._counts = self._counts, dict.fromkeys(self._counts, 0)
        return counts


class _Seldom:
    """Says something at most so often."""

    def __init__(self) -> None:
        self._said: dict[Hashable, float] = {}
        self._unsaid: dict[Hashable, int] = {}

    def now(self, what: Hashable, every: float) -> int | None:
        """How often it was held back since it was said last, if it may be said now; else None."""
        now = time.monotonic()
        if now - self._said.get(what, float("-inf")) < every:
            self._unsaid[what] = self._unsaid.get(what, 0) + 1
            return None
        self._said[what] = now
        return self._unsaid.pop(what, 0)
