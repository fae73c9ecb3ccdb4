"""The app: Python functions as tasks, and the clients of their database."""

from __future__ import annotations

import asyncio
import functools
import inspect
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, cast, overload
from weakref import WeakKeyDictionary

from dibs.arguments import Arguments, ItemArguments, WholePayload
from dibs.client.bulk import Noted, kinds_of
from dibs.client.client import Client
from dibs.client.client_async import AsyncClient
from dibs.client.find import describe_database
from dibs.client.handle import Job
from dibs.client.handle_async import AsyncJob
from dibs.client.middleware import call_hooks, hooks
from dibs.client.remote import RemoteTask
from dibs.client.task import (
    AsyncTask,
    Batch,
    BatchTask,
    PlainTask,
    Task,
    TaskSettings,
    check_function,
    kind_of,
    settings_of,
)
from dibs.errors import DibsError, InvalidArgument
from dibs.events import Event, Events, JobEnqueued
from dibs.job import new_jobs
from dibs.lazy import LazyList
from dibs.policy import lifetime
from dibs.retry import Retry
from dibs.scheduler import Schedules

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
    from types import EllipsisType
    from uuid import UUID

    from dibs.client.decorators import BatchDecorator, ScheduleDecorator, TaskDecorator, Untold
    from dibs.client.middleware import Middleware
    from dibs.db.adapters.detect import AsyncConnection, Connection
    from dibs.job import Enqueued, JobOptions, NewJob
    from dibs.policy import Seconds
    from dibs.schedule import ScheduleRule
    from dibs.states import Answer
    from dibs.worker_settings import WorkerOptions

P = ParamSpec("P")
R = TypeVar("R")
TaskT = TypeVar("TaskT", bound=Task[..., Any])
E = TypeVar("E", bound=Event)


class App:
    """The tasks of an application, and its database.

    ``name`` distinguishes its schedules from those of other apps; it defaults to the module that makes the app.
    ``ttl`` is how long the jobs of tasks without their own ``ttl`` may wait; None is forever, and without it the
    queue's policy applies.

    >>> app = App("postgresql:///shop")
    >>> @app.task(queue="mail")
    ... def welcome(user_id: int, lang: str = "en") -> str: ...
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        queue: str = "default",
        name: str | None = None,
        ttl: Seconds | EllipsisType | None = ...,
    ) -> None:
        self.dsn = dsn
        self.options: JobOptions = {} if ttl is ... else {"ttl": lifetime(ttl)}
        self.schedules = Schedules(name)
        self.queue = queue
        self.tasks: dict[str, Task[Any, Any]] = {}
        self.events = Events()
        self.middleware: tuple[Middleware, ...] = ()
        self.closing: list[Callable[[], Awaitable[None]]] = []
        self._async: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = WeakKeyDictionary()

    def __repr__(self) -> str:
        count = f"{len(self.tasks)} task{'' if len(self.tasks) == 1 else 's'}"
        return f"<App {self.schedules.app} at {describe_database(self.dsn)}: {count}>"

    @overload
    def task(self, function: Callable[P, Untold], /) -> Task[P, Any]: ...  # type: ignore[overload-overlap]

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def task(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...

    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        retry: Retry | None = None,
        timeout: Seconds | None = None,
        soft_timeout: Seconds | None = None,
        process: bool = False,
        memory: int | None = None,
        repeat: Seconds | None = None,
        concurrency: int | None = None,
        rate: float | None = None,
        raw: bool = False,
        **options: Unpack[JobOptions],
    ) -> TaskDecorator: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        retry: Retry | None = None,
        raw: bool = False,
        **given: Any,
    ) -> Any:
        """Make a function a task. It stays callable, and can be enqueued.

        ``timeout`` is how many seconds a run may take; after ``soft_timeout`` seconds ``context().should_stop`` is
        true, so that it can end by itself before that. With ``process`` it runs in a separate process, which is
        killed when it takes longer or, with ``memory``, when it needs more bytes. With ``repeat`` each success enqueues
        the same job again, due that many seconds later. A ``raw`` task takes one argument, the whole payload as it is.
        ``concurrency`` is how many of its jobs run at once and ``rate`` how many start per second, in all workers
        together: set by ``dibs declare``, or by a worker whose role may set limits; a worker does not run a task whose
        limit is not in force.
        Other options are those of each job: priority, ttl, lease and so on.
        """

        if function is not None and not callable(function):
            raise InvalidArgument(f"a task is a function, not {function!r}", hint="options go by name: task(queue=…)")
        settings = settings_of(self, queue, Retry() if retry is None else retry, given)

        def make(decorated: Callable[..., Any]) -> Task[Any, Any]:
            if isinstance(decorated, Task):  # Of another app.
                decorated = decorated.function
            check_function(decorated)
            kind = name or kind_of(decorated)
            made = AsyncTask if inspect.iscoroutinefunction(decorated) else PlainTask
            arguments = (WholePayload if raw else Arguments)(kind, decorated)
            return self._add(made(self, decorated, kind, settings, arguments))

        return make if function is None else make(function)

    def schedule(
        self,
        cron: str | None = None,
        /,
        *,
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **rule: Unpack[ScheduleRule],
    ) -> ScheduleDecorator:
        """Run a task on a schedule; a function becomes a task. A worker declares the schedule when it starts."""
        whole: ScheduleRule = rule if cron is None else {**rule, "cron": cron}
        made = self.schedules.decorator(whole, name=name, args=args, kwargs=kwargs, as_task=self.task)
        return cast("ScheduleDecorator", made)

    def batch(
        self,
        /,
        max: int = 100,
        within: Seconds = 0.1,
        *,
        name: str | None = None,
        queue: str | None = None,
        retry: Retry | None = None,
        timeout: Seconds | None = None,
        soft_timeout: Seconds | None = None,
        **options: Unpack[JobOptions],
    ) -> BatchDecorator:
        """Turn a function that takes a list into a task whose jobs run in batches.

        A batch has up to ``max`` jobs, or what arrives ``within`` seconds.

        One item is enqueued as one job. The function returns None, or a list with an outcome for each item: its result,
        or the exception it would have raised.
        """
        if callable(max):
            raise InvalidArgument("batch takes the size of a batch, not a function", hint="write @app.batch()")
        gathering = Batch(max, float(within) if isinstance(within, int | float) else within.total_seconds())
        own = {"timeout": timeout, "soft_timeout": soft_timeout, "batch": gathering}
        settings = settings_of(self, queue, Retry() if retry is None else retry, {**own, **options})

        def make(decorated: Callable[[list[Any]], Any]) -> BatchTask[Any, Any, Any]:
            check_function(decorated)
            kind = name or kind_of(decorated)
            return self._add(BatchTask(self, decorated, kind, settings, ItemArguments(kind, decorated)))

        return make

    def _add(self, made: TaskT) -> TaskT:
        if made.name in self.tasks:
            raise InvalidArgument(f"there is a task {made.name} already", hint="give one of them another name=")
        self.tasks[made.name] = made
        return made

    def remote(self, kind: str, *, queue: str | None = None) -> RemoteTask:
        """Return a task whose code is elsewhere. It is enqueued by name, with the arguments a worker registered."""
        return RemoteTask(self, kind, queue)

    def add_middleware(self, middleware: Middleware) -> None:
        """Wrap this around every enqueue and run from now on, inside of the middleware added before."""
        self.middleware = (*self.middleware, middleware)

    def on(self, kind: type[E]) -> Callable[[Callable[[E], None]], Callable[[E], None]]:
        """Call the decorated function with each event of this class."""

        def subscribe(function: Callable[[E], None]) -> Callable[[E], None]:
            self.events.on(kind, function)
            return function

        return subscribe

    # Enqueueing

    def enqueue_many(self, jobs: Iterable[NewJob], conn: Connection | None = None) -> Sequence[Job[Any]]:
        """Enqueue jobs made by :meth:`Task.call`, of any of the app's tasks, all or none.

        The jobs are sent while they are read, except with ``conn``. Only a middleware that wraps enqueues gets them as
        a list.
        """
        client = self.client
        sent: list[Noted] = []

        def send(changed: Iterable[NewJob]) -> Sequence[Enqueued]:
            batch = Noted(changed)
            batch.answers = client.enqueue_many(batch.jobs, conn=conn)
            sent.append(batch)
            return batch.answers

        answers = call_hooks(hooks(self.middleware, "enqueue"), new_jobs(jobs), send)
        self._tell(sent)
        kinds = kinds_of(answers, sent)
        return LazyList(len(answers), lambda n: Job(client, *self._handle(answers[n], kinds[n])))

    async def aenqueue_many(
        self, jobs: Iterable[NewJob], conn: AsyncConnection | None = None
    ) -> Sequence[AsyncJob[Any]]:
        """Enqueue jobs made by :meth:`Task.call`, from async code."""
        client = self.async_client()
        sent: list[Noted] = []

        async def send(changed: Iterable[NewJob]) -> Sequence[Enqueued]:
            batch = Noted(changed)
            batch.answers = await client.enqueue_many(batch.jobs, conn=conn)
            sent.append(batch)
            return batch.answers

        answers = await call_hooks(hooks(self.middleware, "aenqueue"), new_jobs(jobs), send)
        self._tell(sent)
        kinds = kinds_of(answers, sent)
        return LazyList(len(answers), lambda n: AsyncJob(client, *self._handle(answers[n], kinds[n])))

    def _enqueue_one(self, job: NewJob, kind: str, conn: Connection | None) -> Job[Any]:
        if hooks(self.middleware, "enqueue") or self.events.wants(JobEnqueued):
            return _first(self.enqueue_many([job], conn), kind)
        made = self.client._enqueuer.enqueue(job, conn)
        return Job(self.client, made.id, made.is_new, made.outcome, self._returns(kind))

    async def _aenqueue_one(self, job: NewJob, kind: str, conn: AsyncConnection | None) -> AsyncJob[Any]:
        if hooks(self.middleware, "aenqueue") or self.events.wants(JobEnqueued):
            return _first(await self.aenqueue_many([job], conn), kind)
        client = self.async_client()
        made = await client._enqueuer.enqueue(job, conn)
        return AsyncJob(client, made.id, made.is_new, made.outcome, self._returns(kind))

    def job(self, id: UUID | str) -> Job[Any]:
        """Return a handle on a job by its id, such as from a URL. It makes no query yet."""
        return self.client.job(id)

    def ajob(self, id: UUID | str) -> AsyncJob[Any]:
        """Return a handle on a job by its id, for async code."""
        return self.async_client().job(id)

    def _handle(self, answer: Enqueued, kind: str | None) -> tuple[UUID, bool, Answer, Any]:
        """Return the fields of a handle; without a known kind its result may be anything."""
        return answer.id, answer.is_new, answer.outcome, self._returns(kind)

    def _returns(self, kind: str | None) -> Any:
        return self.tasks[kind].arguments.returns if kind in self.tasks else Any

    def _tell(self, sent: Sequence[Noted]) -> None:
        if self.events.wants(JobEnqueued):
            for batch in sent:
                for (queue, kind), answer in zip(batch.queues_and_kinds, batch.answers, strict=True):
                    self.events.tell(JobEnqueued(answer.id, queue, kind, answer.outcome))

    # Working

    def run_worker(self, **settings: Unpack[WorkerOptions]) -> int:
        """Run the app's tasks until SIGTERM or Ctrl-C, or with ``drain`` until none is left; return how many ended.

        Takes the fields of :class:`WorkerSettings`; ``queues`` defaults to those of the app's tasks. After the first
        signal it takes no more jobs, and running jobs have ``grace`` seconds to finish; after a second signal they are
        given back at once. Signals reach it in the main thread only.
        """
        from dibs.worker.launch import run_worker

        return run_worker(self, settings)

    async def arun_worker(self, **settings: Unpack[WorkerOptions]) -> int:
        """Run the app's tasks on the running event loop until cancelled; takes what :meth:`run_worker` takes.

        Cancel it to stop: it returns when the running jobs are done or the grace time is over. It handles no signals.
        """
        from dibs.worker.launch import arun_worker

        return await arun_worker(self, settings)

    # Connections

    @functools.cached_property
    def client(self) -> Client:
        """The sync client of the app's database."""
        return Client(self.dsn)

    def async_client(self) -> AsyncClient:
        """The async client of the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._async:
            self._drop_clients_of_closed_loops()
            self._async[loop] = AsyncClient(self.dsn)
        return self._async[loop]

    def _drop_clients_of_closed_loops(self) -> None:
        """Let the connections of clients end that nobody can close: their loop is closed, so nothing runs on it."""
        for reference in self._async.keyrefs():  # A list, so other threads may add clients meanwhile.
            loop = reference()
            if loop is not None and loop.is_closed():
                self._async.pop(loop, None)

    def close(self) -> None:
        """Close the sync client, if there is one."""
        if "client" in self.__dict__:
            self.client.close()

    async def aclose(self) -> None:
        """Run the closers in ``closing``, and close the async client of the running event loop, if there is one."""
        async with AsyncExitStack() as stack:  # It closes the others after an error of one.
            client = self._async.pop(asyncio.get_running_loop(), None)
            if client is not None:
                stack.push_async_callback(client.close)
            for close in reversed(self.closing):
                stack.push_async_callback(close)


JobT = TypeVar("JobT")


def _first(jobs: Sequence[JobT], kind: str) -> JobT:
    if not jobs:
        raise DibsError(
            f"a middleware gave no answer for a job of kind {kind!r}",
            hint="its hook returns what proceed(jobs) returns, or an Enqueued for each job that it leaves out",
        )
    return jobs[0]


__all__ = ["App", "Task", "TaskSettings"]
