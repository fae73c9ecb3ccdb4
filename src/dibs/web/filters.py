"""Filters of jobs: read from an address or a form, and written back into one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from dibs.errors import InvalidArgument, NotPermitted
from dibs.states import DEAD, WAITING, State
from dibs.units import duration

if TYPE_CHECKING:
    from collections.abc import Set
    from datetime import datetime, timedelta

    from starlette.datastructures import ImmutableMultiDict

    from dibs.operation import JobFilter
    from dibs.web.settings import Settings

STATES = {"waiting": WAITING, "dead": DEAD, **{s.value: {s} for s in State if s is not State.UNKNOWN}}
"""The choices of a state: one state, or a word for several."""


DEEPEST = 100
"""The greatest depth of a path into a payload."""


@dataclass(frozen=True, slots=True)
class JobSearch:
    """A search as the user typed it; empty fields are ignored."""

    state: tuple[str, ...] = ()
    queue: str = ""
    kind: str = ""
    group: str = ""
    key: str = ""
    error: str = ""
    alike: str = ""
    payload: str = ""
    header: str = ""
    within: str = ""
    id: tuple[str, ...] = ()

    @classmethod
    def read(cls, given: ImmutableMultiDict[str, Any]) -> JobSearch:
        """Read the search of an address or a form."""
        texts = {f.name: str(given.get(f.name, "")).strip() for f in fields(cls) if f.name not in {"state", "id"}}
        state, id = (tuple(v for v in given.getlist(name) if v) for name in ("state", "id"))
        return cls(state, **texts, id=id)

    @property
    def given(self) -> dict[str, Any]:
        """Return the fields that are not empty, for an address or a form."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name))}

    @property
    def is_special(self) -> bool:
        """True if more is given than a state, a queue and a kind."""
        return bool(self.given.keys() - {"state", "queue", "kind"})

    def filter(self, now: datetime, settings: Settings) -> JobFilter:
        """Return the filter of the client."""
        found: JobFilter = {}
        if self.state:
            found["states"] = sorted({s.value for name in self.state for s in _states(name)})
        if self.id:
            found["ids"] = [id_of(id) for id in self.id]
        if self.error:
            # The text is meant literally: % and _ are no wildcards.
            found["reason"] = "%" + self.error.replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_") + "%"
        if self.within:
            found["enqueued_after"] = _ago(self.within, now)
        if self.payload:
            found["payload"] = _parse_contained(self.payload, settings)
        if self.header:
            found["headers"] = _parse_contained(self.header, settings)
        texts = {
            "queue": self.queue,
            "kind": self.kind,
            "group": self.group,
            "dedup_key": self.key,
            "failure": self.alike,
        }
        found.update({name: text for name, text in texts.items() if text})  # type: ignore[typeddict-item]
        return found


def id_of(text: str) -> UUID:
    """Parse a job's id."""
    try:
        return UUID(text)
    except ValueError:
        raise InvalidArgument(f"{text[:80]!r} is not the id of a job") from None


def _states(name: str) -> Set[State]:
    if name not in STATES:
        raise InvalidArgument(f"there is no state {name[:80]!r}", hint=f"there are {', '.join(STATES)}")
    return STATES[name]


def span_of(text: str) -> timedelta:
    """Parse a duration such as ``5m``."""
    try:
        return duration(text)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None


def _ago(within: str, now: datetime) -> datetime:
    try:
        return now - span_of(within)
    except OverflowError:
        raise InvalidArgument(f"{within[:80]!r} is too long a time") from None


def _parse_contained(text: str, settings: Settings) -> Any:
    """Parse JSON that a job has to contain. Refuse masked values, because a match would reveal them."""
    value = _parse_path(text)
    if settings.cover(value) != value:
        raise NotPermitted("masked values cannot be searched")
    return value


def _parse_path(text: str) -> Any:
    """Parse ``user.id=42`` to ``{"user": {"id": 42}}``; or JSON."""
    if text.startswith(("{", "[")):
        return read_json(text)
    path, sign, value = text.partition("=")
    if not sign or not path.strip():
        raise InvalidArgument(f"{text[:80]!r} is not key=value", hint='write user_id=42, user.name="ana", or JSON')
    names = path.strip().split(".")
    if len(names) > DEEPEST:
        raise InvalidArgument(f"a path has at most {DEEPEST} names, and this has {len(names)}")
    found: Any = _value(value.strip())
    for name in reversed(names):
        found = {name: found}
    return found


def _value(text: str) -> Any:
    try:
        return read_json(text)
    except InvalidArgument:
        return text


def read_json(text: str) -> Any:
    """Parse JSON that a user typed."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidArgument(f"this is not JSON: {error}", hint="go back, and correct it") from None
    except RecursionError:
        raise InvalidArgument("this JSON is nested too deeply") from None
