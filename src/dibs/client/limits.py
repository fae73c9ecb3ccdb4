# Written by tools/unasync.py from limits_async.py: change that and run `make sync`.
"""``client.limits``: limits of the jobs that run at once, or that start per second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.client.noun import Noun
from dibs.db import calls

if TYPE_CHECKING:
    import builtins

    from dibs.info import Limit


class Limits(Noun):
    """Limits of queues, kinds and resources; reached as ``client.limits``."""

    def list(self, queue: str | None = None, *, limit: int = 20) -> builtins.list[Limit]:
        """Return every limit, with its use and its holders.

        With ``queue``, list only limits that apply to jobs of that queue: at most ``limit``, those in use first, and at
        most ``limit`` holders of each.
        """
        return self._run(calls.limits.limits() if queue is None else calls.limits.limits_of(queue, limit))

    def set(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        resource: str | None = None,
        concurrency: int | None = None,
        rate: float | None = None,
        burst: int | None = None,
    ) -> None:
        """Limit how many jobs of a queue or a kind run at once or start per second.

        Of a resource, ``concurrency`` is how many units it has, and ``rate`` how many jobs that name it start per
        second. ``burst`` is how many may start at once after a pause.
        """
        target = {"queue": queue, "kind": kind, "resource": resource}
        self._run(calls.limits.set_limit(target, concurrency, rate, burst))

    def drop(self, *, queue: str | None = None, kind: str | None = None, resource: str | None = None) -> bool:
        """Drop a limit: true when that is done; raises UnknownLimit."""
        return self._run(calls.limits.drop_limit({"queue": queue, "kind": kind, "resource": resource}))
