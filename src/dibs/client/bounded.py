"""Clients for requests of people: each call has a time limit, and the rights of one action only."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self, TypeVar

from dibs.client.client_async import AsyncClient
from dibs.db import calls
from dibs.db.adapters.client_async import join
from dibs.errors import NotPermitted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dibs.db.adapters.detect import AsyncConnection
    from dibs.db.calls import Call
    from dibs.operation import Action

R = TypeVar("R")

ACTION: ContextVar[Action | None] = ContextVar("dibs.action", default=None)
"""The action that is being done."""


class BoundedClient(AsyncClient):
    """An ``AsyncClient`` whose calls the database stops after ``timeout`` seconds.

    With ``read_only`` the database refuses every change.
    """

    def __init__(
        self, dsn: str | None = None, *, timeout: float, read_only: bool, pool_size: int = 4, patience: float = 3.0
    ) -> None:
        super().__init__(dsn, pool_size=pool_size, patience=patience)
        self._bound = calls.schema.bound(timeout, read_only)
        self._database.leading_calls = self._leading_calls

    def _leading_calls(self) -> Sequence[Call[Any]]:
        return [self._bound, *calls.operate.set_actor()]

    async def _run(self, call: Call[R], conn: AsyncConnection | None = None) -> R:
        # The leading calls set the actor, so the call needs none before it.
        return await (self._database.run(call) if conn is None else join(conn, call))

    async def preview(self, change: Call[Any], look: Call[R]) -> R:
        """Return the answer of ``look`` after ``change``, then roll the change back."""
        try:
            async with self._database.transaction() as conn:
                await self._run(change, conn)
                seen = await self._run(look, conn)
                raise _TakenBack
        except _TakenBack:
            return seen


class ActingClient(BoundedClient):
    """A ``BoundedClient`` that takes the role of an action for each transaction, and so can do nothing else.

    Unless ``write`` is set it only reads. With it, it needs a block of :meth:`limited_to`.
    """

    def __init__(self, dsn: str | None = None, *, timeout: float, write: bool, patience: float = 3.0) -> None:
        super().__init__(dsn, timeout=timeout, read_only=not write, patience=patience)
        self._write = write

    @contextmanager
    def limited_to(self, action: Action) -> Iterator[Self]:
        """Make the calls in this block with the rights for this action only.

        It holds for every client with ``write`` that the task of this block, or a task started in the block, calls.
        """
        token = ACTION.set(action)
        try:
            yield self
        finally:
            ACTION.reset(token)

    def _leading_calls(self) -> Sequence[Call[Any]]:
        action = ACTION.get() if self._write else "read"
        if action is None:
            raise NotPermitted("nothing may be changed, since no action was allowed")
        # The role comes last: it may lack the rights for the settings before it.
        return [*super()._leading_calls(), calls.schema.take_role(action)]


class _TakenBack(Exception):
    """Ends a transaction without a commit."""
