"""Inline mode: an enqueue runs the job at once, in the caller's thread.

There is no second queue in memory: the job is enqueued, claimed, run and reported, so every check, outcome and record
is the database's own.
"""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from dibs.db import calls
from dibs.testing._attempt import aattempt, attempt
from dibs.worker.completer import REPORTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dibs.client.app import App
    from dibs.client.client import Client
    from dibs.client.client_async import AsyncClient
    from dibs.db.calls import Call
    from dibs.job import Enqueued, NewJob
    from dibs.worker.run_end import RunEnd


@contextmanager
def inline(app: App, *, raise_errors: bool = False) -> Iterator[None]:
    """Run each job when the app enqueues it, before the enqueue returns, and all else that is due in its queue.

    A job that is due later, by its enqueue or for its next attempt, waits for :func:`drain`. With ``raise_errors`` the
    enqueue raises the handler's exception, after it was recorded. With ``conn`` the job runs in the transaction of
    that connection, before you commit it.
    """
    client, async_client = app.client, app.async_client
    outer = app.__dict__.get("async_client")
    app.__dict__["client"] = InlineClient(app, client, raise_errors)
    app.__dict__["async_client"] = lambda: InlineAsyncClient(app, async_client(), raise_errors)
    try:
        yield
    finally:
        app.__dict__["client"] = client
        del app.__dict__["async_client"]
        if outer is not None:
            app.__dict__["async_client"] = outer


class InlineClient:
    """A client that runs what it enqueues."""

    def __init__(self, app: App, client: Client, raise_errors: bool) -> None:
        self._app = app
        self._client = client
        self._raise_errors = raise_errors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    @property
    def _enqueuer(self) -> SimpleNamespace:
        """The part of a client by which an app enqueues one job."""
        return SimpleNamespace(enqueue=lambda job, conn: self.enqueue_many([job], conn=conn)[0])

    def enqueue(self, queue: str, *args: Any, conn: Any = None, **options: Any) -> Enqueued:
        """Enqueue one job, then run everything that is due in its queue."""
        made = self._client.enqueue(queue, *args, conn=conn, **options)
        self._run_due({queue}, conn)
        return made

    def enqueue_many(self, jobs: Iterable[NewJob], *, conn: Any = None) -> Sequence[Enqueued]:
        """Enqueue many jobs, then run everything that is due in their queues."""
        asked = list(jobs)
        made = self._client.enqueue_many(asked, conn=conn)
        self._run_due({job.queue for job in asked}, conn)
        return made

    def _run_due(self, queues: set[str], conn: Any) -> None:
        while queues and (claimed := self._client._run(_claim(queues), conn)):
            ran = attempt(self._app, claimed[0], self._client.dsn)
            if (call := report_call(ran.end)) is not None:
                self._client._run(call, conn)
            queues = queues | {job.queue for job in ran.follow_ups}
            if self._raise_errors and ran.error is not None:
                raise ran.error


class InlineAsyncClient:
    """An async client that runs what it enqueues."""

    def __init__(self, app: App, client: AsyncClient, raise_errors: bool) -> None:
        self._app = app
        self._client = client
        self._raise_errors = raise_errors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    @property
    def _enqueuer(self) -> SimpleNamespace:
        """The part of a client by which an app enqueues one job."""

        async def enqueue(job: NewJob, conn: Any) -> Enqueued:
            return (await self.enqueue_many([job], conn=conn))[0]

        return SimpleNamespace(enqueue=enqueue)

    async def enqueue(self, queue: str, *args: Any, conn: Any = None, **options: Any) -> Enqueued:
        """Enqueue one job, then run everything that is due in its queue."""
        made = await self._client.enqueue(queue, *args, conn=conn, **options)
        await self._run_due({queue}, conn)
        return made

    async def enqueue_many(self, jobs: Iterable[NewJob], *, conn: Any = None) -> Sequence[Enqueued]:
        """Enqueue many jobs, then run everything that is due in their queues."""
        asked = list(jobs)
        made = await self._client.enqueue_many(asked, conn=conn)
        await self._run_due({job.queue for job in asked}, conn)
        return made

    async def _run_due(self, queues: set[str], conn: Any) -> None:
        while queues and (claimed := await self._client._run(_claim(queues), conn)):
            ran = await aattempt(self._app, claimed[0], self._client.dsn)
            if (call := report_call(ran.end)) is not None:
                await self._client._run(call, conn)
            queues = queues | {job.queue for job in ran.follow_ups}
            if self._raise_errors and ran.error is not None:
                raise ran.error


def _claim(queues: set[str]) -> Call[Any]:
    # Claim one at a time, so that a job whose handler enqueues others waits in no claim while they run.
    return calls.jobs.claim(sorted(queues), 1, None, None)


def report_call(end: RunEnd) -> Call[Any] | None:
    """Return the call that reports an end; None if the handler's transaction has reported it."""
    return None if end.verb == "none" else REPORTS[end.verb].call([end.job], [end])
