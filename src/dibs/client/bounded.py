"""A client for requests of people: each call has a time limit, and may be unable to change anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from dibs.client.client_async import AsyncClient
from dibs.db import calls

if TYPE_CHECKING:
    from dibs.db.adapters.detect import AsyncConnection
    from dibs.db.calls import Call

R = TypeVar("R")


class BoundedClient(AsyncClient):
    """An ``AsyncClient`` whose calls the database stops after ``timeout`` seconds.

    With ``read_only`` the database refuses whatever would change something.
    """

    def __init__(
        self, dsn: str | None = None, *, timeout: float, read_only: bool, pool_size: int = 4, patience: float = 3.0
    ) -> None:
        super().__init__(dsn, pool_size=pool_size, patience=patience)
        self._bound = calls.schema.bound(timeout, read_only)

    async def _run(self, call: Call[R], conn: AsyncConnection | None = None) -> R:
        if conn is not None:
            return await super()._run(call, conn)
        answers = await self._database.run_together([self._bound, *calls.operate.acting(), call])
        answer: R = answers[-1]
        return answer
