# Written by tools/unasync.py from looking_async.py: change that and run `make sync`.
"""The client's looks at what goes on: charts, queues in detail, what runs, errors, deliveries and processes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

from dibs.db import calls

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from dibs.db.calls import Call
    from dibs.info import (
        GroupInfo,
        Limit,
        PriorityDepth,
        QueueInfo,
        RunningJob,
        SettingInfo,
        Vital,
        WorkersWanted,
    )
    from dibs.operation import ErrorHour
    from dibs.policy import Seconds
    from dibs.stats import Counters, Period, QueueRate

R = TypeVar("R")


class Looking(ABC):
    """What a client can look at."""

    @abstractmethod
    def _run(self, call: Call[R]) -> R: ...

    def now(self) -> datetime:
        """The database's time."""
        return self._run(calls.schema.now())

    def periods(
        self, queue: str | None = None, kind: str | None = None, *, since: Seconds = 3600, every: Seconds = 60
    ) -> list[Period]:
        """What happened in the last ``since`` seconds, all kinds together, by period.

        A period in which nothing happened is left out.
        """
        return self._run(calls.statistics.periods(queue, kind, since, every))

    def queue_rates(self, *, since: Seconds = 3600, every: Seconds = 300) -> list[QueueRate]:
        """How many runs of each queue succeeded and failed, by period."""
        return self._run(calls.statistics.queue_rates(since, every))

    def workers_wanted(
        self,
        queue: str | None = None,
        *,
        target: Seconds = 300.0,
        concurrency: int | None = None,
        run_time: Seconds | None = None,
    ) -> list[WorkersWanted]:
        """How many workers a queue needs, or each queue, so that what is due is done within ``target`` seconds.

        ``concurrency`` is how many jobs one worker runs at once, ``run_time`` how long a run takes; without them, as
        the live workers say and as measured.
        """
        return self._run(calls.queues.workers_wanted(queue, target, concurrency, run_time))

    def counters(self) -> list[Counters]:
        """What happened since the install, by queue and kind, in numbers that only rise."""
        return self._run(calls.statistics.counters())

    def vitals(self) -> list[Vital]:
        """Numbers of the whole database, for monitoring: workers, schedules, limits, sizes, the horizon."""
        return self._run(calls.doctor.vitals())

    def queue_info(self, name: str) -> QueueInfo | None:
        """One queue and its policy; None if it is not there."""
        return self._run(calls.queues.queue(name))

    def depth_by_priority(self, queue: str) -> list[PriorityDepth]:
        """How many jobs of each priority of a queue wait and run, the highest priority first."""
        return self._run(calls.queues.depth_by_priority(queue))

    def settings_of(self, queue: str) -> list[SettingInfo]:
        """Each setting of a queue, and where its value comes from."""
        return self._run(calls.queues.settings_of(queue))

    def groups(self, queue: str, *, limit: int = 20) -> list[GroupInfo]:
        """The groups of a queue that run or wait most, have waited longest, or are noisy: ``limit`` of each sort."""
        return self._run(calls.groups.groups(queue, limit))

    def limits_of(self, queue: str, *, limit: int = 20) -> list[Limit]:
        """The limits that jobs of a queue may meet, those in use first; each with ``limit`` of its holders at most."""
        return self._run(calls.limits.limits_of(queue, limit))

    def held(self, ids: Sequence[UUID]) -> list[RunningJob]:
        """Those of some jobs that are held now."""
        return self._run(calls.jobs.held(ids))

    def running(self, *, worker: int | None = None, limit: int = 1000) -> list[RunningJob]:
        """Jobs that are held now, the longest held first; of one worker, if its number is given."""
        return self._run(calls.jobs.running(worker, limit))

    def errors(
        self,
        *,
        job: UUID | None = None,
        source: str | None = None,
        since: datetime | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[dict[str, Any]]:
        """The log of operational errors, newest first; ``before`` continues after the error with that number."""
        return self._run(calls.channels.errors(job, source, since, before, limit))

    def error_hours(self, *, since: Seconds = 86400) -> list[ErrorHour]:
        """How many failures of each group happened, by the hour."""
        return self._run(calls.operate.error_hours(since))

    def deliveries(self, *, interrupted: bool = False, limit: int = 50) -> list[dict[str, Any]]:
        """What channels sent, newest first; only what may have gone out twice, if ``interrupted``."""
        return self._run(calls.channels.deliveries(interrupted, limit))

    def processes(self, *, limit: int = 50) -> list[dict[str, Any]]:
        """Processes under a supervisor, and when they are looked at next."""
        return self._run(calls.channels.processes(limit))
