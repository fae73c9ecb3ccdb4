# Written by tools/unasync.py from failures_async.py: change that and run `make sync`.
"""``client.failures``: failed runs, grouped by similar errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.client.noun import Noun
from dibs.db import calls

if TYPE_CHECKING:
    import builtins
    from datetime import datetime

    from dibs.operation import FailureGroup, FailureHour
    from dibs.policy import Seconds


class Failures(Noun):
    """Similar failures; reached as ``client.failures``."""

    def list(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        since: datetime | None = None,
        limit: int = 50,
    ) -> builtins.list[FailureGroup]:
        """Return groups of similar failures, the most recent first."""
        return self._run(calls.operate.failures(queue, kind, since, limit))

    def by_hour(self, *, since: Seconds = 86400) -> builtins.list[FailureHour]:
        """Count the failures of each group by the hour."""
        return self._run(calls.operate.failure_hours(since))
