"""Tasks: functions that can be called, or enqueued."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, Unpack, cast

from msgspec import Struct, field
from msgspec.structs import replace

from dibs.db.calls.encoder import Encoder, TaskCall
from dibs.errors import InvalidArgument
from dibs.job import JobOptions, NewJob, new_jobs
from dibs.policy import Seconds, seconds
from dibs.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
    from uuid import UUID

    from dibs.arguments import Arguments
    from dibs.client.app import App
    from dibs.client.handle import Job
    from dibs.client.handle_async import AsyncJob

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
C_co = TypeVar("C_co", covariant=True)
T = TypeVar("T")

REPEATED_KEY = "dibs-dedup-key"
"""The header with the dedup key of a job that repeats: the database itself keeps only a hash of the key."""


TASK_SETTINGS = ("timeout", "soft_timeout", "process", "memory", "repeat", "batch", "concurrency", "rate")
"""The settings of a task that are not options of its jobs."""

SLOWEST_RATE, FASTEST_RATE = 0.000001, 1_000_000


class Batch(Struct, frozen=True):
    """The size of a batch: up to ``max`` jobs, or those that arrive ``within`` that many seconds."""

    max: int = 100
    within: float = 0.1

    def __post_init__(self) -> None:
        if self.max < 1 or self.within < 0:
            raise InvalidArgument(f"a batch has at least 1 job and waits 0 seconds or longer, not {self}")


class TaskSettings(Struct, frozen=True):
    """The settings for enqueueing and running a task's jobs."""

    queue: str
    retry: Retry
    timeout: float | None = None
    options: JobOptions = field(default_factory=lambda: cast("JobOptions", {}))
    process: bool = False
    memory: int | None = None
    repeat: float | None = None
    batch: Batch | None = None
    concurrency: int | None = None
    soft_timeout: float | None = None
    rate: float | None = None
    conn: Any = None
    changed: frozenset[str] = frozenset()
    """The names of the options that ``using`` was given."""

    @property
    def is_bounded(self) -> bool:
        """True if a run has its own process or a time limit."""
        return self.process or self.timeout is not None or self.soft_timeout is not None

    def __post_init__(self) -> None:
        if self.memory is not None and not self.process:
            raise InvalidArgument("a memory cap needs a separate process", hint="set process=True, too")
        if self.batch is not None and (self.process or self.repeat is not None):
            raise InvalidArgument("a batch handler runs in the worker itself and does not repeat")
        for name, value in (
            ("timeout", self.timeout),
            ("soft_timeout", self.soft_timeout),
            ("memory", self.memory),
            ("repeat", self.repeat),
            ("concurrency", self.concurrency),
        ):
            if value is not None and value < 0:
                raise InvalidArgument(f"a task's {name} is 0 or more, not {value}")
        if self.soft_timeout is not None and self.timeout is not None and self.soft_timeout >= self.timeout:
            raise InvalidArgument(
                f"a task's soft_timeout is below its timeout of {self.timeout:g} s, not {self.soft_timeout:g} s",
                hint="between the two its handler has time to end by itself",
            )
        if self.rate is not None and not SLOWEST_RATE <= self.rate <= FASTEST_RATE:
            raise InvalidArgument(
                f"a task's rate is how many start per second, from {SLOWEST_RATE:f} to {FASTEST_RATE}, not {self.rate}"
            )


class Task(Generic[P, R_co]):
    """A function that can be called, or enqueued; ``R_co`` is the type of its jobs' results."""

    def __init__(
        self, app: App, function: Callable[..., Any], name: str, settings: TaskSettings, arguments: Arguments
    ) -> None:
        functools.update_wrapper(self, function)  # It copies the function's attributes: ours come afterwards.
        self.app = app
        self.function = function
        self.name = name
        self.settings = settings
        self.arguments = arguments
        self.is_async = inspect.iscoroutinefunction(function)

    def __repr__(self) -> str:
        return f"<Task {self.name} on queue {self.settings.queue}: {self.arguments.signature}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function directly."""
        return self.function(*args, **kwargs)

    def using(self, *, queue: str | None = None, conn: Any = None, **options: Unpack[JobOptions]) -> Self:
        """Return this task with other options, or for enqueues in the transaction of ``conn``."""
        check_options(options)
        changed = replace(
            self.settings,
            queue=queue or self.settings.queue,
            conn=self.settings.conn if conn is None else conn,
            options=cast("JobOptions", {**self.settings.options, **options}),
            changed=self.settings.changed | options.keys() | ({"queue"} if queue else set()),
        )
        return type(self)(self.app, self.function, self.name, changed, self.arguments)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """Return the call as a job to be enqueued: for bulk enqueues and follow-ups."""
        return self._encoder.job(self.arguments.pack(args, kwargs))

    def job_of(self, payload: Any) -> NewJob:
        """Make a job of this task from a payload that is known to fit."""
        return self._encoder.job(payload)

    @functools.cached_property
    def _encoder(self) -> Encoder:
        """Makes jobs of this task, from payloads that fit its arguments."""
        retry = self.settings.retry
        options: dict[str, Any] = {
            "max_attempts": retry.max_attempts,
            "backoff": retry.backoff,
            **self.settings.options,
        }
        if self.settings.repeat is not None and "dedup_key" in options:
            options["headers"] = {**options.get("headers", {}), REPEATED_KEY: options["dedup_key"]}
        return Encoder(self.settings.changed, queue=self.settings.queue, kind=self.name, **options)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Enqueue one call."""
        return self.app._enqueue_one(self.call(*args, **kwargs), self.name, self.settings.conn)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> AsyncJob[R_co]:
        """Enqueue one call, from async code."""
        return await self.app._aenqueue_one(self.call(*args, **kwargs), self.name, self.settings.conn)

    def job(self, id: UUID | str) -> Job[R_co]:
        """Return a handle on a job of this task by its id. Its result has the type that the task returns."""
        return replace(self.app.job(id), returns=self.arguments.returns)

    def ajob(self, id: UUID | str) -> AsyncJob[R_co]:
        """Return a handle on a job of this task by its id, for async code."""
        return replace(self.app.ajob(id), returns=self.arguments.returns)

    def enqueue_many(self, calls: Iterable[NewJob]) -> Sequence[Job[R_co]]:
        """Enqueue many calls, made by :meth:`call`, all or none.

        Options of :meth:`using` apply to all of them, except calls that have their own.
        """
        return self.app.enqueue_many(self._with_options(calls), self.settings.conn)

    async def aenqueue_many(self, calls: Iterable[NewJob]) -> Sequence[AsyncJob[R_co]]:
        """Enqueue many calls, made by :meth:`call`, all or none, from async code."""
        return await self.app.aenqueue_many(self._with_options(calls), self.settings.conn)

    def _with_options(self, calls: Iterable[NewJob]) -> Iterable[NewJob]:
        if not self.settings.changed:
            return calls
        return map(self._with_my_options, new_jobs(calls))

    def _with_my_options(self, job: NewJob) -> NewJob:
        missing = self.settings.changed - _options_of(job)
        changed = replace(job, **{name: getattr(self._encoder.bare, name) for name in missing})
        if self.settings.repeat is None or changed.dedup_key is None or not missing & {"dedup_key", "headers"}:
            return changed
        headers = job.headers if "headers" not in missing else changed.headers
        return replace(changed, headers={**(headers or {}), REPEATED_KEY: changed.dedup_key})

    def facts(self) -> dict[str, Any]:
        """Return the facts that a producer without this code needs to enqueue it."""
        options = {k: v for k, v in self._encoder.bare.as_json(None).items() if k not in {"queue", "kind", "payload"}}
        return {
            "kind": self.name,
            "queue": self.settings.queue,
            "arguments": self.arguments.describe(),
            "options": options,
        }


class AsyncTask(Task[P, R_co]):
    """A task that is an ``async def``: calling it returns a coroutine."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
            """Call the function directly."""


class PlainTask(Task[P, R_co]):
    """A task that is a ``def``."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
            """Call the function directly."""


class BatchTask(Task[[T], R_co], Generic[T, R_co, C_co]):
    """A task whose jobs run in batches. It is enqueued with one item; ``C_co`` is the type its function returns."""

    def __call__(self, item: T) -> C_co:
        """Call the function directly, with a list of one item."""
        return cast("C_co", self.function([item]))


def _options_of(job: NewJob) -> frozenset[str]:
    """Return the options given for this job: those of ``using``, or all that are set if no task made it."""
    if isinstance(job, TaskCall):
        return job.encoder.own
    return frozenset(name for name in job.__struct_fields__ if getattr(job, name) is not None)


def kind_of(function: Callable[..., Any]) -> str:
    """Return the default kind of a function's jobs."""
    return f"{_module_of(function)}.{function.__qualname__}".replace("<locals>.", "")


def _module_of(function: Callable[..., Any]) -> str:
    """Return the name by which a worker imports the function's module; in a script it calls itself ``__main__``."""
    if function.__module__ not in {"__main__", "__mp_main__"}:
        return function.__module__
    # A decorator's wrapper has the module of the function, but the globals of the decorator.
    module = getattr(inspect.unwrap(function), "__globals__", {})
    if module.get("__spec__") is not None:  # python -m shop
        return str(module["__spec__"].name)
    if "__file__" in module:  # python shop.py
        return Path(module["__file__"]).stem
    return function.__module__  # An interactive session.


def check_function(given: Callable[..., Any]) -> None:
    """Refuse a callable that is no function, such as a ``functools.partial``: its arguments and types are not known."""
    if not hasattr(given, "__qualname__"):
        raise InvalidArgument(f"a task is a function, not {given!r}", hint="call it in a function that you decorate")


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that a job does not have, and name the one that was probably meant."""
    for name in options.keys() - JobOptions.__annotations__.keys():
        raise _wrong_option(name)
    if options.get("ttl", 1) is None:
        hint = "leave it out for that of the app or the queue; dibs.policy.FOREVER never ends"
        raise InvalidArgument("a task's ttl is a number of seconds or a timedelta, not None", hint=hint)


def _wrong_option(name: str) -> InvalidArgument:
    """Make the error for an option that a job does not have, with the place where it belongs or the one meant."""
    at_task, at_using = (*TASK_SETTINGS, "name", "retry"), ("queue", "conn")
    if name in at_task:
        return InvalidArgument(f"{name} is no option of a job", hint=f"set it for the task: app.task({name}=…)")
    if name in at_using:
        return InvalidArgument(f"{name} is no option of a job", hint=f"set it for some enqueues: .using({name}=…)")
    from difflib import get_close_matches

    near = get_close_matches(name, [*JobOptions.__annotations__, *at_task, *at_using], 1)
    hint = f"did you mean {near[0]!r}?" if near else f"a job has {', '.join(sorted(JobOptions.__annotations__))}"
    return InvalidArgument(f"a task has no option {name!r}", hint=hint)


def settings_of(app: App, queue: str | None, retry: Retry, arguments: Mapping[str, Any]) -> TaskSettings:
    """Make a task's settings from the arguments of its decorator."""
    if not isinstance(retry, Retry):
        raise InvalidArgument(f"a task's retry is a dibs.Retry, not {retry!r}", hint="write dibs.Retry(max_attempts=3)")
    options = {name: value for name, value in arguments.items() if name not in TASK_SETTINGS}
    check_options(options)
    own: dict[str, Any] = {
        name: value for name, value in arguments.items() if name in TASK_SETTINGS and value is not None
    }
    for name in ("timeout", "soft_timeout", "repeat"):
        if name in own:
            own[name] = seconds(cast("Seconds", own[name]))
    return TaskSettings(queue or app.queue, retry, options=cast("JobOptions", {**app.options, **options}), **own)
