"""Python functions as jobs: the app knows them, the tasks enqueue them."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, cast, overload
from weakref import WeakKeyDictionary

import msgspec

from dibs.arguments import Arguments
from dibs.client.client import Client
from dibs.client.client_async import AsyncClient
from dibs.errors import InvalidArgument, JobEnded
from dibs.job import NewJob
from dibs.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from uuid import UUID

    from dibs.job import Enqueued
    from dibs.policy import JobOptions
    from dibs.states import State

P = ParamSpec("P")
R = TypeVar("R")

LOOK = 0.1
"""How often a wait for a job's end looks."""


class App:
    """The tasks of an application, and its database.

    >>> app = App("postgresql:///shop")
    >>> @app.task(queue="mail")
    ... def welcome(user_id: int, lang: str = "en") -> str: ...
    """

    def __init__(self, dsn: str | None = None, *, queue: str = "default") -> None:
        self.dsn = dsn
        self.queue = queue
        self.tasks: dict[str, Task[Any, Any]] = {}
        self._async: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = WeakKeyDictionary()

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        retry: Retry | None = None,
        timeout: float | None = None,
        **options: Unpack[JobOptions],
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        retry: Retry | None = None,
        timeout: float | None = None,
        **options: Unpack[JobOptions],
    ) -> Any:
        """Make a function a task: it stays callable, and can be enqueued."""

        def make(decorated: Callable[..., Any]) -> Task[Any, Any]:
            kind = name or f"{decorated.__module__}.{decorated.__qualname__}".replace("<locals>.", "")
            if kind in self.tasks:
                raise InvalidArgument(f"there is a task {kind} already", hint="give one of them another name=")
            settings = TaskSettings(queue or self.queue, retry or Retry(), timeout, options)
            made: Task[Any, Any] = Task(self, decorated, kind, settings)
            self.tasks[kind] = made
            return made

        return make if function is None else make(function)

    @functools.cached_property
    def client(self) -> Client:
        """The sync client of the app's database."""
        return Client(self.dsn)

    def async_client(self) -> AsyncClient:
        """The async client of the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._async:
            self._async[loop] = AsyncClient(self.dsn)
        return self._async[loop]

    def close(self) -> None:
        """Close the sync client, if there is one."""
        if "client" in self.__dict__:
            self.client.close()

    async def aclose(self) -> None:
        """Close the async client of the running event loop, if there is one."""
        client = self._async.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """How a task's jobs are enqueued and run."""

    queue: str
    retry: Retry
    timeout: float | None
    options: JobOptions
    conn: Any = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job that was enqueued: look at it, wait for it, cancel it."""

    app: App
    id: UUID
    is_new: bool

    def state(self) -> State:
        """What it is now."""
        return self.app.client.state(self.id)

    def result(self) -> Any:
        """What its last successful run returned; None before that, and where no history is kept."""
        shown = self.app.client.show(self.id) or {"attempts": []}
        return next((a["result"] for a in reversed(shown["attempts"]) if a["outcome"] == "succeeded"), None)

    def wait(self, timeout: float = 60.0) -> Any:
        """Wait until it has ended and return its result; a bad end raises JobEnded, none in time TimeoutError."""
        end = time.monotonic() + timeout
        while not (state := self.state()).has_ended:
            if time.monotonic() >= end:
                raise TimeoutError(f"job {self.id} is still {state} after {timeout:g} s")
            time.sleep(LOOK)
        if state.is_dead:
            raise JobEnded(f"job {self.id} ended as {state}", hint=self.app.client.why(self.id))
        return self.result()

    def cancel(self) -> str:
        """Cancel it, or ask its holder to stop."""
        return self.app.client.cancel(self.id)


class Task(Generic[P, R]):
    """A function that can be called as it is, or enqueued."""

    def __init__(self, app: App, function: Callable[P, R], name: str, settings: TaskSettings) -> None:
        self.app = app
        self.function = function
        self.name = name
        self.settings = settings
        self.arguments = Arguments(name, function)
        self.is_async = inspect.iscoroutinefunction(function)
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now."""
        return self.function(*args, **kwargs)

    def using(self, *, queue: str | None = None, conn: Any = None, **options: Unpack[JobOptions]) -> Task[P, R]:
        """The same task with other options, or in the transaction of ``conn``."""
        merged = {**self.settings.options, **options}
        changed = replace(
            self.settings,
            queue=queue or self.settings.queue,
            conn=conn or self.settings.conn,
            options=cast("JobOptions", merged),
        )
        return Task(self.app, self.function, self.name, changed)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """The call as a job to be enqueued: for bulk enqueues and follow-ups."""
        retry = self.settings.retry
        options: dict[str, Any] = {
            "max_attempts": retry.max_attempts,
            "backoff": retry.backoff,
            **self.settings.options,
        }
        payload = self.arguments.pack(args, kwargs)
        return NewJob(queue=self.settings.queue, kind=self.name, payload=payload, **options)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Enqueue one call."""
        return self._handles(self.app.client.enqueue_many([self.call(*args, **kwargs)], conn=self.settings.conn))[0]

    def enqueue_many(self, calls: Iterable[NewJob]) -> list[Job]:
        """Enqueue many calls, made by :meth:`call`, all or none."""
        return self._handles(self.app.client.enqueue_many(calls, conn=self.settings.conn))

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Enqueue one call, from async code."""
        client = self.app.async_client()
        return self._handles(await client.enqueue_many([self.call(*args, **kwargs)], conn=self.settings.conn))[0]

    def _handles(self, made: list[Enqueued]) -> list[Job]:
        return [Job(self.app, m.id, m.is_new) for m in made]


def result_of(value: Any) -> Any:
    """A handler's result as JSON can hold it."""
    return None if value is None else msgspec.to_builtins(value)
