"""``client.channels``: what was sent, which business processes are supervised, and the error log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dibs.client.noun_async import AsyncNoun
from dibs.db import calls

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID


class AsyncChannels(AsyncNoun):
    """Deliveries, supervised processes and the error log; reached as ``client.channels``."""

    async def deliveries(self, *, interrupted: bool = False, limit: int = 50) -> list[dict[str, Any]]:
        """Return what channels sent, newest first; with ``interrupted``, only what may have gone out twice."""
        return await self._run(calls.channels.deliveries(interrupted, limit))

    async def supervised(self, *, limit: int = 50) -> list[dict[str, Any]]:
        """Return the business processes under a supervisor, and when each is checked next."""
        return await self._run(calls.channels.processes(limit))

    async def error_log(
        self,
        *,
        job: UUID | None = None,
        source: str | None = None,
        since: datetime | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[dict[str, Any]]:
        """Return the log of operational errors, newest first; ``before`` continues after the error with that number."""
        return await self._run(calls.channels.errors(job, source, since, before, limit))
