"""Assertions about enqueued jobs. A failure shows the jobs that were enqueued instead."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

import msgspec

from dibs.client.app import App
from dibs.client.task import Task
from dibs.db.calls import Call
from dibs.errors import InvalidArgument
from dibs.job import JobOptions, NewJob
from dibs.policy import Backoff

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from dibs.client.client import Client

SHOWN = 20
LEEWAY = 1.0
"""A delay is measured from the time of the enqueue; they may differ by this many seconds."""
_OWN = ("queue", "priority", "delay", "due_at", "state", "payload")
_UNREADABLE = {"dedup_key", "dedup", "dedup_scope", "dedup_for", "on_duplicate", "shard_key"}
"""Options that cannot be read after the enqueue."""
READABLE = tuple(name for name in JobOptions.__annotations__ if name not in {*_OWN, *_UNREADABLE})
"""The options that a job shows, besides those that are fields of :class:`Seen`."""
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Seen:
    """An enqueued job, as the assertions see it."""

    id: UUID
    queue: str
    kind: str
    state: str
    priority: int
    payload: Any
    enqueued_at: datetime
    due_at: datetime
    options: Mapping[str, Any] = field(default_factory=dict)
    """The other options of the enqueue: ``group``, ``ttl`` and so on; durations in seconds."""

    @property
    def delay(self) -> float:
        """Seconds from its enqueue until it was due; after it was put back, until its new due time."""
        return (self.due_at - self.enqueued_at).total_seconds()

    def __str__(self) -> str:
        return f"{_called(self.kind, self.payload)}  queue={self.queue} priority={self.priority} {self.state}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A wanted job: a kind, arguments and options. A part that is not named may be anything."""

    kind: str
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def differences(self, job: Seen) -> list[str]:
        """Say in words how a job differs from the wanted one."""
        if job.kind != self.kind:
            return [f"its kind is {job.kind}, not {self.kind}", *self._differing_options(job)]
        return [*self._differing_arguments(job), *self._differing_options(job)]

    def _differing_arguments(self, job: Seen) -> list[str]:
        if not self.arguments:
            return []
        if not isinstance(job.payload, dict):
            return [f"its payload is {job.payload!r}, which has no names"]
        given = {**self.defaults, **job.payload}
        return [
            f"{name} is {_shown(given.get(name, _MISSING))}, not {wanted!r}"
            for name, wanted in self.arguments.items()
            if wanted != given.get(name, _MISSING)
        ]

    def _differing_options(self, job: Seen) -> list[str]:
        given = {**job.options, **{name: getattr(job, name) for name in _OWN}}
        return [
            f"its {name} is {given.get(name)!r}, not {wanted!r}"
            for name, wanted in self.options.items()
            if not (abs(job.delay - wanted) <= LEEWAY if name == "delay" else wanted == given.get(name))
        ]

    def likeness(self, job: Seen) -> tuple[float, int]:
        """Return a sort key for the similarity of a job and the wanted one: the kind counts first."""
        return SequenceMatcher(None, self.kind, job.kind).ratio(), -len(self.differences(job))

    def __str__(self) -> str:
        options = "".join(f" {name}={value!r}" for name, value in self.options.items())
        return f"{_called(self.kind, dict(self.arguments))}{options}"


def assert_enqueued(
    what: Task[..., Any] | NewJob | str,
    /,
    *args: Any,
    count: int | None = None,
    queue: str | None = None,
    state: str | None = None,
    payload: Any = _MISSING,
    arguments: Mapping[str, Any] | None = None,
    on: App | Client | None = None,
    conn: Any = None,
    **kwargs: Any,
) -> list[Seen]:
    """Assert that a job was enqueued, in any state now. Return the jobs that match, oldest first.

    ``what`` is a task, a call made by ``task.call(…)``, or the name of a kind; a name needs ``on``, an app or a client.
    Arguments are compared as JSON, and only the given ones: ``assert_enqueued(welcome, 42)`` matches any language. Put
    an argument into ``arguments`` if a parameter here has its name, such as ``queue``, or an option of jobs, such as
    ``group`` or ``priority``: outside it stands for the option. With ``count`` exactly that many jobs must match,
    otherwise at least one. ``conn`` also sees jobs that your own transaction has not committed.
    """
    __tracebackhide__ = True  # pytest shows the line of the test.
    wanted = _wanted(what, args, arguments or {}, _options(kwargs, queue=queue, state=state, payload=payload), kwargs)
    jobs = enqueued(_client(what, on), conn=conn)
    matches = [job for job in jobs if not wanted.differences(job)]
    if len(matches) != count if count is not None else not matches:
        raise AssertionError(_not_found(wanted, count, matches, jobs))
    return matches


def refute_enqueued(
    what: Task[..., Any] | NewJob | str,
    /,
    *args: Any,
    queue: str | None = None,
    state: str | None = None,
    payload: Any = _MISSING,
    arguments: Mapping[str, Any] | None = None,
    on: App | Client | None = None,
    conn: Any = None,
    **kwargs: Any,
) -> None:
    """Assert that no such job was enqueued; takes what :func:`assert_enqueued` takes."""
    __tracebackhide__ = True  # pytest shows the line of the test.
    wanted = _wanted(what, args, arguments or {}, _options(kwargs, queue=queue, state=state, payload=payload), kwargs)
    jobs = enqueued(_client(what, on), conn=conn)
    matches = [job for job in jobs if not wanted.differences(job)]
    if matches:
        raise AssertionError(f"{wanted} was enqueued{_times(len(matches))}:\n{_listed(matches)}")


def enqueued(on: App | Client, *, conn: Any = None) -> list[Seen]:
    """Return every job, ended or not, oldest first."""
    client = on.client if isinstance(on, App) else on
    return client._run(_EVERY_JOB, conn)


def _read(rows: list[tuple[Any, ...]]) -> list[Seen]:
    made = []
    for id, queue, kind, state, priority, enqueued_at, due_at, text, durations in rows:
        shown = msgspec.json.decode(text)
        payload = shown["payload"] if shown["body"] is None else b64decode(shown["body"])
        options = {**shown, **shown["policy"], **msgspec.json.decode(durations)}
        if options["deadline"] is not None:
            options["deadline"] = datetime.fromisoformat(options["deadline"])
        kept = {name: options.get(name) for name in READABLE}
        made.append(Seen(id, queue, kind, state, priority, payload, enqueued_at, due_at, kept))
    return made


_EVERY_JOB = Call(
    """
    select j.id, j.queue, j.kind, j.state, j.priority, j.enqueued_at, j.due_at, s.shown::text,
      jsonb_strip_nulls(jsonb_build_object(
        'ttl', extract(epoch from (p.policy ->> 'ttl')::interval),
        'lease', extract(epoch from (p.policy ->> 'lease')::interval),
        'lease_cap', extract(epoch from (p.policy ->> 'lease_cap')::interval),
        'backoff', p.policy -> 'backoff' || jsonb_build_object(
          'delays', (
            select jsonb_agg(extract(epoch from d.value::interval) order by d.ordinality)
            from jsonb_array_elements_text(p.policy -> 'backoff' -> 'delays') with ordinality as d),
          'cap', extract(epoch from (p.policy -> 'backoff' ->> 'cap')::interval))))::text
    from dibs.jobs as j cross join lateral (select dibs.show(j.id)) as s (shown)
    cross join lateral (select s.shown -> 'policy') as p (policy)
    order by j.id
    """,
    (),
    _read,
)


def _client(what: Task[..., Any] | NewJob | str, on: App | Client | None) -> App | Client:
    __tracebackhide__ = True
    if on is not None:
        return on
    if isinstance(what, Task):
        return what.app
    raise InvalidArgument("a name alone does not say where to look", hint="give on=, an app or a client")


def _options(kwargs: dict[str, Any], **own: Any) -> dict[str, Any]:
    """Take the options of jobs out of the keyword arguments."""
    __tracebackhide__ = True
    given = {name: kwargs.pop(name) for name in [*kwargs] if name in JobOptions.__annotations__}
    if unkept := [name for name in given if name not in {*READABLE, *_OWN}]:
        raise InvalidArgument(
            f"the {unkept[0]} of a job is not kept, so it cannot be asserted",
            hint=f"an argument of that name goes into arguments={{{unkept[0]!r}: …}}",
        )
    named = {name: value for name, value in own.items() if value is not None and value is not _MISSING}
    return named | {name: _stored(value) for name, value in given.items()}


def _stored(value: Any) -> Any:
    """Return an option as the database shows it."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Backoff):
        parts = value.as_json() | {"delays": list(value.delays)}
        return {name: part for name, part in parts.items() if part is not None}
    return value


def _wanted(
    what: Task[..., Any] | NewJob | str,
    args: tuple[Any, ...],
    arguments: Mapping[str, Any],
    options: dict[str, Any],
    kwargs: dict[str, Any],
) -> Wanted:
    __tracebackhide__ = True
    named = {**arguments, **kwargs}
    if isinstance(what, Task):
        return _of_task(what, args, named, options)
    if args:
        raise InvalidArgument("a kind's name does not say what its arguments are called", hint="give them by name")
    if isinstance(what, NewJob):
        asked = what.payload if isinstance(what.payload, dict) else {}
        return Wanted(what.kind, {**asked, **_plain(named)}, {"queue": what.queue, **options})
    return Wanted(what, _plain(named), options)


def _of_task(task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Wanted:
    __tracebackhide__ = True
    signature = task.arguments.signature
    try:
        given = signature.bind_partial(*args, **kwargs).arguments
    except TypeError as error:
        raise InvalidArgument(f"task {task.name}: {error}", hint=f"it takes {signature}") from None
    defaults = {p.name: p.default for p in signature.parameters.values() if p.default is not p.empty}
    return Wanted(task.name, _plain(given), options, _plain(defaults))


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _as_json(value) for name, value in values.items()}


def _as_json(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    try:
        return msgspec.to_builtins(value)
    except TypeError:
        return value  # Something that only compares, such as mock.ANY.


def _not_found(wanted: Wanted, count: int | None, matches: Sequence[Seen], jobs: Sequence[Seen]) -> str:
    if matches:
        return f"{wanted} was enqueued{_times(len(matches))}, not {count}:\n{_listed(matches)}"
    lines = [f"{wanted} was not enqueued."]
    if jobs:
        nearest = max(jobs, key=wanted.likeness)
        lines += [f"The nearest is {nearest}", f"  but {'; '.join(wanted.differences(nearest))}."]
        lines += [f"Enqueued were {len(jobs)}:", _listed(jobs)]
    else:
        lines += ["Nothing was enqueued at all. What your own transaction has not committed is seen with conn=."]
    return "\n".join(lines)


def _times(count: int) -> str:
    return " once" if count == 1 else f" {count} times"


def _listed(jobs: Sequence[Seen]) -> str:
    more = [f"  and {len(jobs) - SHOWN} more"] if len(jobs) > SHOWN else []
    return "\n".join([*(f"  {job}" for job in jobs[:SHOWN]), *more])


def _called(kind: str, payload: Any) -> str:
    if isinstance(payload, dict):
        return f"{kind}({', '.join(f'{name}={value!r}' for name, value in payload.items())})"
    return f"{kind}({'' if payload is None else repr(payload)})"


def _shown(value: Any) -> str:
    return "missing" if value is _MISSING else repr(value)
