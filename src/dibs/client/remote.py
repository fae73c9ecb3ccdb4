"""Tasks whose code is elsewhere, enqueued by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from dibs.client.task import REPEATED_KEY, check_options
from dibs.db import calls
from dibs.errors import InvalidArgument
from dibs.job import NewJob
from dibs.policy import Backoff

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dibs.client.app import App
    from dibs.client.handle import Job
    from dibs.client.handle_async import AsyncJob
    from dibs.job import JobOptions


class RemoteTask:
    """A task known by its name. Its arguments are checked by name here, and by type where it runs.

    Before the first job it reads the queue, arguments and options that a worker has registered.
    """

    def __init__(self, app: App, kind: str, queue: str | None = None, options: JobOptions | None = None) -> None:
        self._app = app
        self._queue = queue
        self._options: dict[str, Any] = dict(options or {})
        self._facts: Mapping[str, Any] | None = None
        self.kind = kind

    def __repr__(self) -> str:
        return f"<RemoteTask {self.kind}{'' if self._queue is None else f' on queue {self._queue}'}>"

    def using(self, *, queue: str | None = None, **options: Unpack[JobOptions]) -> RemoteTask:
        """Return this task with other options."""
        check_options(options)
        changed: Any = {**self._options, **options}
        made = RemoteTask(self._app, self.kind, queue or self._queue, changed)
        made._facts = self._facts
        return made

    def enqueue(self, *args: Any, conn: Any = None, **kwargs: Any) -> Job[Any]:
        """Enqueue one call; with ``conn``, in the transaction of that connection."""
        if self._facts is None:
            self._facts = self._app.client._run(calls.workers.find_task(self.kind), conn)
        return self._app._enqueue_one(self._job(self._facts, args, kwargs), self.kind, conn)

    async def aenqueue(self, *args: Any, conn: Any = None, **kwargs: Any) -> AsyncJob[Any]:
        """Enqueue one call, from async code."""
        if self._facts is None:
            self._facts = await self._app.async_client()._run(calls.workers.find_task(self.kind), conn)
        return await self._app._aenqueue_one(self._job(self._facts, args, kwargs), self.kind, conn)

    def _job(self, facts: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewJob:
        arguments = facts["arguments"]
        payload: Any = _by_name(self.kind, arguments, args, kwargs)
        if arguments and arguments[0].get("whole"):
            payload = payload[arguments[0]["name"]]
        options = {**facts["options"], **self._options}
        if REPEATED_KEY in (facts["options"].get("headers") or {}):  # A task that repeats under its dedup key.
            options["headers"] = {**(options["headers"] or {}), REPEATED_KEY: options.get("dedup_key")}
        if isinstance(options.get("backoff"), dict):
            options["backoff"] = msgspec.convert(options["backoff"], Backoff)
        return NewJob(
            queue=self._queue or facts["queue"], kind=self.kind, payload=msgspec.to_builtins(payload), **options
        )


def _by_name(
    kind: str, known: Sequence[Mapping[str, Any]], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call by their names. Refuse unknown, missing and repeated ones."""
    names = [argument["name"] for argument in known]
    takes = "it takes (" + ", ".join(f"{a['name']}: {a.get('type', 'Any')}" for a in known) + ")"
    if len(args) > len(names):
        raise InvalidArgument(f"task {kind}: {len(args)} arguments given, {len(names)} taken", hint=takes)
    given = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names:
            from difflib import get_close_matches

            near = get_close_matches(name, names, 1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise InvalidArgument(f"task {kind}: it has no argument {name!r}{meant}", hint=takes)
        if name in given:
            raise InvalidArgument(f"task {kind}: argument {name!r} is given twice", hint=takes)
        given[name] = value
    for argument in known:
        if (argument["required"] or argument.get("whole")) and argument["name"] not in given:
            raise InvalidArgument(f"task {kind}: argument {argument['name']!r} is missing", hint=takes)
    return given
