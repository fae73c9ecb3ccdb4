"""Writes events into a log. All log lines of a worker come from here."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO

from dibs.errors import InvalidArgument
from dibs.events import (
    Event,
    Events,
    KindUnknown,
    RunEnded,
    Trouble,
    WorkerStarted,
)
from dibs.metrics.formats import JsonFormat, TextFormat
from dibs.metrics.lines import LEVELS, Line, line_of
from dibs.states import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

UNKNOWN = 60.0
"""An unknown kind is logged at most once in this many seconds."""

_FORMATS: dict[str, Callable[[], logging.Formatter]] = {"text": TextFormat, "json": JsonFormat}


def log_events(
    events: Events,
    format: Literal["text", "json", "none"] = "text",
    *,
    level: int | str = logging.INFO,
    stream: TextIO | None = None,
    everything: bool = False,
) -> EventLog:
    """Write a line for each event to the logger ``dibs``, and that to ``stream`` (standard error without one).

    With ``everything`` the lines of all other loggers go there too, those of a task with its job's id and kind. With
    the format ``none`` only records are made, and your own logging decides their place and form; their attribute
    ``dibs`` has the facts. Events below ``level`` are not subscribed to and cost nothing.
    """
    if format not in {*_FORMATS, "none"}:
        raise InvalidArgument(f"a log is written as text, json or none, not as {format!r}")
    handler = None
    if format != "none":
        handler = logging.StreamHandler(stream)
        handler.setFormatter(_FORMATS[format]())
    return EventLog(events, _level(level), handler, everything)


def _level(level: int | str) -> int:
    number = logging.getLevelNamesMapping().get(level.upper()) if isinstance(level, str) else level
    if number is None:
        raise InvalidArgument(f"there is no log level {level!r}", hint="say debug, info, warning or error")
    return number


class EventLog:
    """The subscription of a log, until closed."""

    def __init__(self, events: Events, level: int, handler: logging.Handler | None, everything: bool) -> None:
        self._events = events
        self._level = level
        self._logger = logging.getLogger("dibs")
        self._worker: int | None = None
        self._seldom = _Seldom()
        self._handler = handler
        self._written = logging.getLogger() if everything else self._logger
        if handler is not None:
            _add_handler(self._written, handler, level)
        self._subscribed = [(kind, self._subscriber(kind)) for kind, most in LEVELS.items() if most >= level]
        for kind, subscriber in self._subscribed:
            events.on(kind, subscriber)

    def close(self) -> None:
        """Stop writing."""
        for kind, subscriber in self._subscribed:
            self._events.off(kind, subscriber)
        if self._handler is not None:
            _remove_handler(self._written, self._handler)
            self._handler.flush()

    def _subscriber(self, kind: type[Event]) -> Callable[[Any], None]:
        special: dict[type[Event], Callable[[Any], None]] = {
            RunEnded: self._ended,
            KindUnknown: self._unknown,
            Trouble: self._trouble,
            WorkerStarted: self._started,
        }
        return special.get(kind, self._tell)

    def _tell(self, event: Event) -> None:
        self._write(event, line_of(event))

    def _write(self, event: Event, line: Line, error: BaseException | None = None) -> None:
        if not self._shows(line.level):
            return
        facts = {"event": type(event).__name__, **line.facts}
        if self._worker is not None:
            facts["worker"] = self._worker
        # A line has the traceback of a run as text, or that of an error.
        raised = None if error is None else (type(error), error, error.__traceback__)
        # The record is made here, because Logger.log would look for its caller first: half of the cost of a line.
        record = self._logger.makeRecord(
            "dibs", line.level, __file__, 0, "%s", (line.text,), raised, extra={"dibs": facts}
        )
        record.exc_text = line.traceback
        self._logger.handle(record)

    def _shows(self, level: int) -> bool:
        return level >= self._level and self._logger.isEnabledFor(level)

    def _started(self, event: WorkerStarted) -> None:
        self._worker = event.number
        self._tell(event)

    def _ended(self, event: RunEnded) -> None:
        # Hot path: the line of a success is not made if nobody reads it.
        if event.outcome is not Outcome.SUCCEEDED or self._shows(logging.INFO):
            self._tell(event)

    def _unknown(self, event: KindUnknown) -> None:
        held_back = self._seldom.held_back(event.job.kind, UNKNOWN)
        if held_back is None:
            return
        line = line_of(event)
        if held_back:
            line = Line(line.level, f"{line.text}; {held_back} more before", line.facts)
        self._write(event, line)

    def _trouble(self, event: Trouble) -> None:
        self._write(event, line_of(event), event.error if self._level <= logging.DEBUG else None)


class _Changed(NamedTuple):
    """A logger that logs of dibs write to: its level and ``propagate`` before the first, and the level of each log."""

    level: int
    propagate: bool
    levels: dict[logging.Handler, int]


_changed: dict[str, _Changed] = {}
"""The loggers that open logs write to. Logs may be closed in any order."""


def _add_handler(logger: logging.Logger, handler: logging.Handler, level: int) -> None:
    """Let a logger write to a handler, and to no handlers of its parents. The level of the newest log counts."""
    changed = _changed.setdefault(logger.name, _Changed(logger.level, logger.propagate, {}))
    changed.levels[handler] = level
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False


def _remove_handler(logger: logging.Logger, handler: logging.Handler) -> None:
    """Undo :func:`_add_handler`. Without the last handler the logger is as it was before the first."""
    changed = _changed.get(logger.name)
    if changed is None or handler not in changed.levels:
        return  # Closed before.
    logger.removeHandler(handler)
    del changed.levels[handler]
    logger.setLevel([changed.level, *changed.levels.values()][-1])
    if not changed.levels:
        logger.propagate = changed.propagate
        del _changed[logger.name]


class _Seldom:
    """Lines that are logged at most once in a period."""

    def __init__(self) -> None:
        self._written_at: dict[Hashable, float] = {}
        self._held_back: dict[Hashable, int] = {}

    def held_back(self, what: Hashable, every: float) -> int | None:
        """Return how many lines were held back since the last one; None to hold this one back, too."""
        now = time.monotonic()
        if now - self._written_at.get(what, float("-inf")) < every:
            self._held_back[what] = self._held_back.get(what, 0) + 1
            return None
        self._written_at[what] = now
        return self._held_back.pop(what, 0)
