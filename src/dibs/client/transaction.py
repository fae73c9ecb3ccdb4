"""``context.transaction()``: a connection whose commit also completes the job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from dibs.db import calls
from dibs.db.adapters import client as on_sync
from dibs.db.adapters import client_async as on_async
from dibs.db.database import Database
from dibs.db.database_async import AsyncDatabase
from dibs.errors import LeaseLost
from dibs.results import result_of
from dibs.runtime.points import reach
from dibs.states import Answer

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from types import TracebackType

    from dibs.client.context import Context
    from dibs.db.calls import Call


A = TypeVar("A")
S = TypeVar("S")


class Databases:
    """The connection pools of handlers' transactions, opened at their first use."""

    def __init__(self, dsn: str, size: int) -> None:
        self.sync = Database(dsn, pool_size=size, reset=True)
        self.asynchronous = AsyncDatabase(dsn, pool_size=size, reset=True)

    async def close(self) -> None:
        """Close both pools."""
        try:
            self.sync.close()
        finally:
            await self.asynchronous.close()


class Transaction(Generic[A, S]):
    """A transaction whose last statement completes the job by its token; on ``conn`` if one is given."""

    def __init__(self, context: Context, databases: Databases | None, conn: Any = None) -> None:
        self._context = context
        self._databases = databases
        self._conn = conn
        self._async: AbstractAsyncContextManager[A]
        self._sync: AbstractContextManager[S]
        self._async_conn: A
        self._sync_conn: S

    async def __aenter__(self) -> A:
        pool: Any = self._databases
        self._async = on_async.begin(self._conn) if pool is None else pool.asynchronous.transaction()
        self._async_conn = await self._async.__aenter__()
        return self._async_conn

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            await self._async.__aexit__(kind, error, trace)
            return
        self._context._is_completing = True
        try:
            try:
                self._check(await on_async.join(cast("Any", self._async_conn), self._completion()))
                reach("transaction.before_commit")
            except BaseException as failed:
                await self._async.__aexit__(type(failed), failed, failed.__traceback__)
                raise
            await self._async.__aexit__(None, None, None)
            self._context.completed = True
        finally:
            self._context._is_completing = False
        reach("transaction.after_commit")

    def __enter__(self) -> S:
        pool: Any = self._databases
        self._sync = on_sync.begin(self._conn) if pool is None else pool.sync.transaction()
        self._sync_conn = self._sync.__enter__()
        return self._sync_conn

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._sync.__exit__(kind, error, trace)
            return
        self._context._is_completing = True
        try:
            try:
                self._check(on_sync.join(cast("Any", self._sync_conn), self._completion()))
                reach("transaction.before_commit")
            except BaseException as failed:
                self._sync.__exit__(type(failed), failed, failed.__traceback__)
                raise
            self._sync.__exit__(None, None, None)
            self._context.completed = True
        finally:
            self._context._is_completing = False
        reach("transaction.after_commit")

    def _check(self, answer: Answer) -> None:
        if answer is Answer.ALREADY:
            # The answer of an earlier commit was lost. Its writes are there, so these must not be added.
            raise LeaseLost(f"job {self._context.id} was completed by an earlier transaction of this attempt")

    def _completion(self) -> Call[Answer]:
        follow_ups = [job.as_json(job.id, inline=True) for job in self._context.follow_ups]
        return calls.jobs.complete(self._context.job, result_of(self._context.result), follow_ups or None)
