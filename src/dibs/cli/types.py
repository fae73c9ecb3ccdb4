"""Types of options: durations, times, ids, states, JSON."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click
import msgspec
from click.shell_completion import CompletionItem

from dibs.cli.command import did_you_mean
from dibs.cli.session import IdGiven, IdPrefix, Session
from dibs.db import calls
from dibs.mask import read_keys
from dibs.queue_settings import backoff
from dibs.states import DEAD, State
from dibs.units import duration, rate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from dibs.db.calls import Call

    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # Generic in newer releases of click only.


T = TypeVar("T")


class Read(_ParamType):
    """A type read by a function that raises ValueError with a sentence."""

    def __init__(self, name: str, read: Callable[[str], Any], *, choices: Collection[str] = ()) -> None:
        self.name = name
        self._read = read
        self._choices = choices

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse a text; leave a value that is already parsed."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the choices."""
        return [CompletionItem(word) for word in self._choices if word.startswith(incomplete)]


class Stored(Read):
    """The name of something in the database; a shell can complete it."""

    def __init__(self, name: str, read: Callable[[str], Any], known: Callable[[str], Call[list[str]]]) -> None:
        super().__init__(name, read)
        self._known = known

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the names that begin so; none if the database does not answer."""
        return [CompletionItem(word) for word in ctx.ensure_object(Session).complete(self._known(incomplete))]


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a time; write 2026-10-31T09:00Z or 2026-10-31T09:00+02:00") from None
    if found.utcoffset() is None:
        raise ValueError(f"{text!r} has no time zone; write {found.isoformat(timespec='minutes')}Z for UTC, or +02:00")
    return found


def _past(text: str) -> datetime | timedelta:
    try:
        return duration(text)
    except ValueError:
        return _moment(text)


def _id(text: str) -> IdGiven:
    if re.fullmatch(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}", text, re.IGNORECASE):
        return UUID(text)
    if not re.fullmatch(r"[0-9a-f-]{4,35}", text, re.IGNORECASE) or not 4 <= len(text.replace("-", "")) <= 32:
        raise ValueError(
            f"{text!r} is not a job's id; an id looks like 0199f3a2-7c1e-7b02-a1f4-5d0c9a3be871, and 4 characters of "
            "its beginning will do if they say which job is meant"
        )
    return IdPrefix(text.lower())


def _whole_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a job's id; an id looks like 0199f3a2-7c1e-7b02-a1f4-5d0c9a3be871") from None


def _one_of(known: Collection[str], what: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in known:
            raise ValueError(f"there is no {what} {text!r}{did_you_mean(text, known)} ({', '.join(known)})")
        return text

    return read


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"not JSON: {error}; quote it for the shell: '{{\"user\": 42}}'") from None


def _pair(text: str) -> tuple[str, str]:
    return _split(text, "a name and a value; write user_id=42")


def _split(text: str, expected: str) -> tuple[str, str]:
    """Split ``name=value`` at the first ``=``; the value may be empty."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"{text!r} is not {expected}")
    return name, value


def by_name(pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    """Return the values by their names; refuse a name that is given twice."""
    found: dict[str, T] = {}
    for name, value in pairs:
        if name in found:
            raise click.UsageError(f"{name} is given twice")
        found[name] = value
    return found


def _header(text: str) -> tuple[str, str]:
    return _split(text, "a header; write name=value")


def _units(text: str) -> tuple[str, int]:
    name, equals, units = text.partition("=")
    if not equals or not name or not units.isdecimal():
        raise ValueError(f"{text!r} is not a resource and its units; write gpu=1")
    return name, int(units)


def _span_or_none(text: str) -> timedelta | None:
    return None if text == "none" else duration(text)


def _or_none(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        if text == "none":
            return None
        try:
            return read(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a number; write a number, or none") from None

    return convert


STATES = [state.value for state in State if state is not State.UNKNOWN]
DEAD_STATES = [state for state in STATES if State(state) in DEAD]


def _states(text: str) -> list[str]:
    return DEAD_STATES if text == "dead" else [_one_of([*STATES, "dead"], "state")(text)]


DURATION = Read("duration", duration)
RATE = Read("rate", rate)
KEYS = Read("keys", read_keys)
DURATION_OR_NONE = Read("duration or none", _span_or_none)
COUNT_OR_NONE = Read("number or none", _or_none(int))
SHARE_OR_NONE = Read("share or none", _or_none(float))
MOMENT = Read("time", _moment)
PAST = Read("time or duration", _past)
WHOLE_ID = Read("id", _whole_id)
JOB_ID = Stored("id", _id, calls.names.ids)
QUEUE = Stored("queue", str, calls.names.queues)
KIND = Stored("kind", str, calls.names.kinds)
SCHEDULE = Stored("schedule", str, calls.names.schedules)
PAIR = Read("name=value", _pair)
PORT = click.IntRange(0, 65535)
JSON = Read("json", _json)
HEADER = Read("name=value", _header)
UNITS = Read("name=units", _units)
BACKOFF = Read("backoff", backoff)
STATES_OF = Read("state", _states, choices=[*STATES, "dead"])
