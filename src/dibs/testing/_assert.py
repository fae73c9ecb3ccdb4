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
_FIELDS = ("queue", "priority", "delay", "due_at", "state", "payload")
"""Options that are fields of :class:`Seen`."""
_NOT_KEPT = {"dedup_key", "dedup", "dedup_scope", "dedup_for", "on_duplicate", "shard_key"}
"""Options that the database does not keep with the job."""
READABLE = tuple(name for name in JobOptions.__annotations__ if name not in {*_FIELDS, *_NOT_KEPT})
"""All other options: :attr:`Seen.options`."""
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
class Description:
    """The description of a wanted job: kind, arguments and options. All others may be anything."""

    kind: str
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The values of arguments that a payload leaves out."""

    def differences(self, job: Seen) -> list[str]:
        """Say in words how a job differs from this description."""
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
        given = {**job.options, **{name: getattr(job, name) for name in _FIELDS}}
        return [
            f"its {name} is {given.get(name)!r}, not {wanted!r}"
            for name, wanted in self.options.items()
            if not (_is_near(wanted, job.delay) if name == "delay" else wanted == given.get(name))
        ]

    def likeness(self, job: Seen) -> tuple[float, int]:
        """Return a sort key for the similarity of a job and the wanted one: the kind counts first."""
        return SequenceMatcher(None, self.kind, job.kind).ratio(), -len(self.differences(job))

    def __str__(self) -> str:
        options = "".join(f" {name}={value!r}" for name, value in self.options.items())
        return f"{_called(self.kind, dict(self.arguments))}{options}"


def _is_near(wanted: Any, delay: float) -> bool:
    return abs(delay - wanted) <= LEEWAY if isinstance(wanted, int | float) else bool(wanted == delay)


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

    ``what`` is a task, a call made by ``task.call(…)``, or the name of a kind. A call and a name also need ``on``, an
    app or a client. Arguments are compared as JSON, and only the given ones: ``assert_enqueued(welcome, 42)`` matches
    any language. Keywords are arguments of the task, except parameters of this function and options of jobs, such as
    ``queue`` or ``priority``: give an argument of such a name in ``arguments``. With ``count`` exactly that many jobs
    must match, otherwise at least one. ``conn`` also sees jobs that your own transaction has not committed.
    """
    __tracebackhide__ = True  # pytest shows the line of the test.
    options = _take_options(kwargs, queue=queue, state=state, payload=payload)
    wanted = _describe(what, args, {**(arguments or {}), **kwargs}, options)
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
    """Assert that no such job was enqueued. It takes the parameters of :func:`assert_enqueued`, without ``count``."""
    __tracebackhide__ = True  # pytest shows the line of the test.
    if "count" in kwargs:
        raise InvalidArgument(
            "refute_enqueued has no count", hint="an argument of that name goes into arguments={'count': …}"
        )
    options = _take_options(kwargs, queue=queue, state=state, payload=payload)
    wanted = _describe(what, args, {**(arguments or {}), **kwargs}, options)
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
    raise InvalidArgument("a call or a name does not say where to look", hint="give on=, an app or a client")


def _take_options(kwargs: dict[str, Any], **own: Any) -> dict[str, Any]:
    """Remove the options of jobs from the keyword arguments, and return them with those of ``own`` that are given."""
    __tracebackhide__ = True
    given = {name: kwargs.pop(name) for name in [*kwargs] if name in JobOptions.__annotations__}
    if unkept := [name for name in given if name not in {*READABLE, *_FIELDS}]:
        raise InvalidArgument(
            f"the {unkept[0]} of a job is not kept, so it cannot be asserted",
            hint=f"an argument of that name goes into arguments={{{unkept[0]!r}: …}}",
        )
    # Null is a payload, but no queue and no state.
    named = {n: v for n, v in own.items() if v is not _MISSING and (v is not None or n == "payload")}
    return named | {name: _stored(value) for name, value in given.items()}


def _stored(value: Any) -> Any:
    """Return an option as the database shows it."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Backoff):
        parts = value.as_json() | {"delays": list(value.delays)}
        return {name: part for name, part in parts.items() if part is not None}
    return value


def _describe(
    what: Task[..., Any] | NewJob | str,
    args: tuple[Any, ...],
    arguments: Mapping[str, Any],
    options: dict[str, Any],
) -> Description:
    __tracebackhide__ = True
    if isinstance(what, Task):
        return _describe_task(what, args, arguments, options)
    if args:
        raise InvalidArgument("a kind's name does not say what its arguments are called", hint="give them by name")
    if isinstance(what, NewJob):
        options = {"queue": what.queue, **options}
        if isinstance(what.payload, dict):
            return Description(what.kind, {**what.payload, **_plain(arguments)}, options)
        return Description(what.kind, _plain(arguments), {"payload": _as_json(what.payload), **options})
    return Description(what, _plain(arguments), options)


def _describe_task(
    task: Task[..., Any], args: tuple[Any, ...], named: Mapping[str, Any], options: dict[str, Any]
) -> Description:
    __tracebackhide__ = True
    signature = task.arguments.signature
    try:
        given = signature.bind_partial(*args, **named).arguments
    except TypeError as error:
        raise InvalidArgument(f"task {task.name}: {error}", hint=f"it takes {signature}") from None
    defaults = {p.name: p.default for p in signature.parameters.values() if p.default is not p.empty}
    return Description(task.name, _plain(given), options, _plain(defaults))


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _as_json(value) for name, value in values.items()}


def _as_json(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    try:
        return msgspec.to_builtins(value)
    except TypeError:
        return value  # Something that only compares, such as mock.ANY.


def _not_found(wanted: Description, count: int | None, matches: Sequence[Seen], jobs: Sequence[Seen]) -> str:
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
