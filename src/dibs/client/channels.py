# Written by tools/unasync.py from channels_async.py: change that and run `make sync`.
"""``client.channels``: what was sent, which business processes are supervised, and the error log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dibs.client.noun import Noun
from dibs.db import calls

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID


class Channels(Noun):
    """Deliveries, supervised processes and the error log; reached as ``client.channels``."""

    def deliveries(self, *, interrupted: bool = False, limit: int = 50) -> list[dict[str, Any]]:
        """Return what channels sent, newest first; with ``interrupted``, only what may have gone out twice."""
        return self._run(calls.channels.deliveries(interrupted, limit))

    def supervised(self, *, limit: int = 50) -> list[dict[str, Any]]:
        """Return the business processes under a supervisor, and when each is checked next."""
        return self._run(calls.channels.processes(limit))

    def error_log(
        self,
        *,
        job: UUID | None = None,
        source: str | None = None,
        since: datetime | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[dict[str, Any]]:
        """Return the log of operational errors, newest first; ``before`` continues after the error with that number."""
        return self._run(calls.channels.errors(job, source, since, before, limit))
