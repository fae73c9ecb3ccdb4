"""The contents of a database and the results of its upkeep, as values."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from uuid import UUID

    from dibs.policy import History, WhenFull
    from dibs.states import State


class QueueInfo(msgspec.Struct, frozen=True):
    """A queue and its policy."""

    name: str
    paused_at: datetime | None
    created_at: datetime
    priority: int
    lease: timedelta
    lease_growth: float
    lease_cap: timedelta
    max_attempts: int
    max_losses: int
    backoff: dict[str, Any]
    ttl: timedelta | None
    payload_limit: int
    history: History
    retention: timedelta
    history_retention: timedelta
    ring: bool
    shards: int | None
    shard_lease: timedelta
    max_depth: int | None
    max_age: timedelta | None
    when_full: WhenFull
    newest_first: bool
    noisy_share: float | None


class SettingInfo(msgspec.Struct, frozen=True):
    """A setting of a queue: its value, the default, and where the value comes from; times are in seconds.

    ``tasks`` are those of the queue that declare their own in code, with what they declare.
    """

    setting: str
    value: Any
    standard: Any
    source: Literal["default", "set"]
    set_by: str | None
    set_at: datetime | None
    tasks: dict[str, Any]


class GroupInfo(msgspec.Struct, frozen=True):
    """A group of a queue: how many of its jobs run and wait, how long its oldest has been due, and its settings.

    A noisy one has had more than its share, and is served last. With ``is_estimate``, ``waiting`` is one.
    """

    group: str
    running: int
    waiting: int
    oldest: timedelta | None
    noisy: bool
    weight: int
    concurrency: int | None
    rate: float | None
    is_estimate: bool = False


class WorkerInfo(msgspec.Struct, frozen=True):
    """A worker that registered: when it was last seen, how many jobs it holds, and the kinds it runs, if it said so.

    ``cpu`` is how many processors it kept busy lately, ``memory`` how many bytes it uses; both are None until its
    second sign of life, and where it cannot tell. ``stop_asked_at`` is since when it is asked to stop.
    """

    id: int
    name: str
    started_at: datetime
    seen_at: datetime
    facts: dict[str, Any]
    running: int
    kinds: list[str] | None = None
    cpu: float | None = None
    memory: int | None = None
    stop_asked_at: datetime | None = None


class RunningJob(msgspec.Struct, frozen=True):
    """A running job: its worker, its lease, and its progress."""

    id: UUID
    queue: str
    kind: str | None
    worker: int | None
    claimed_at: datetime
    lease_until: datetime
    attempt: int
    progress: dict[str, Any] | None
    cancel_requested: bool


class TaskInfo(msgspec.Struct, frozen=True):
    """A task that a worker registered: its queue, its arguments and the options of its jobs."""

    kind: str
    queue: str
    arguments: list[dict[str, Any]]
    options: dict[str, Any]
    set_at: datetime


_SUMS = {"waiting": ("scheduled", "ready", "blocked"), "dead": ("failed", "exhausted", "expired", "cancelled")}
"""The numbers of a depth that are sums of others."""


class Depth(msgspec.Struct, frozen=True):
    """The number of jobs of a queue in each state, and how long the oldest has waited and run.

    ``estimated`` names the numbers that are estimates, because there were too many to count one by one.
    """

    queue: str
    paused: bool = False
    scheduled: int = 0
    ready: int = 0
    blocked: int = 0
    running: int = 0
    failed: int = 0
    exhausted: int = 0
    expired: int = 0
    cancelled: int = 0
    oldest_ready: timedelta = timedelta()
    oldest_running: timedelta = timedelta()
    oldest_untried: timedelta = timedelta()
    estimated: list[str] = []

    @property
    def waiting(self) -> int:
        """The number of jobs that have still to run."""
        return self.scheduled + self.ready + self.blocked

    @property
    def dead(self) -> int:
        """The number of jobs that ended badly."""
        return self.failed + self.exhausted + self.expired + self.cancelled

    def told(self, name: str) -> str:
        """A number as people read it: ``12345``, and ``≈ 1,230,000`` if it is an estimate."""
        return told(getattr(self, name), estimate=bool({*_SUMS.get(name, (name,))} & {*self.estimated}))


class PriorityDepth(msgspec.Struct, frozen=True):
    """The number of jobs of one priority that wait and run; ``estimated`` names the numbers that are estimates."""

    priority: int
    scheduled: int
    ready: int
    blocked: int
    running: int
    estimated: list[str] = []

    def told(self, name: str) -> str:
        """A number as people read it: marked if it is an estimate."""
        return told(getattr(self, name), estimate=name in self.estimated)


def told(count: int, *, estimate: bool) -> str:
    """A number as people read it: ``12345``, and ``≈ 1,230,000`` if it is an estimate."""
    return f"≈ {count:,}" if estimate else str(count)


class DrainEstimate(msgspec.Struct, frozen=True):
    """The number of due jobs, how many arrive and leave per second, and when none is left; None if that is never."""

    waiting: int
    arriving: float
    leaving: float
    drained_in: timedelta | None


class WorkersWanted(msgspec.Struct, frozen=True):
    """The number of workers a queue needs, how many are alive, and the numbers this is computed from.

    ``arriving`` is in jobs per second; ``run_mean`` is None if no run was measured, and then counts as one second;
    ``jobs_each`` is how many jobs a worker runs at once. If ``limited``, a limit, groups or shards allow no more.
    """

    queue: str
    workers: int
    live: int
    ready: int
    blocked: int
    running: int
    arriving: float
    run_mean: timedelta | None
    jobs_each: float
    limited: bool


class JobSummary(msgspec.Struct, frozen=True):
    """One line of a list of jobs.

    ``attempts`` of a job that succeeded is from the history, and counts those before a redrive, too; None where the
    history was not kept. ``expire_at`` is None once the job has ended, and if it never expires.
    """

    id: UUID
    queue: str
    kind: str
    state: State
    priority: int
    enqueued_at: datetime
    due_at: datetime
    attempts: int | None
    max_attempts: int
    reason: str | None
    progress: dict[str, Any] | None = None
    expire_at: datetime | None = None


class Limit(msgspec.Struct, frozen=True):
    """A limit that was set, and how much of it is used. A group without a name stands for every group of its queue.

    ``blocked`` is counted up to 10,000; with ``blocked_more`` there are more.
    """

    scope: Literal["queue", "kind", "group", "resource"]
    queue: str | None
    name: str | None
    concurrency: int | None
    used: int
    free: int | None
    rate: float | None
    burst: int | None
    weight: int | None
    blocked: int
    holders: list[UUID]
    max_depth: int | None = None
    max_age: timedelta | None = None
    declared: int | None = None
    blocked_more: bool = False


class Resumed(msgspec.Struct, frozen=True):
    """The result of a resume: since when the queue was paused, and how many jobs are past their time."""

    paused_at: datetime | None
    late: int
    extended: int


class Rescued(msgspec.Struct, frozen=True):
    """A job whose lease was not renewed in time, and its state now; no id if we are confined to other queues."""

    id: UUID | None
    state: State


class MadeDay(msgspec.Struct, frozen=True):
    """A day's partition: ``made``, ``exists``, ``locked`` or ``crowded``."""

    name: str
    outcome: str


class Pruned(msgspec.Struct, frozen=True):
    """The result of pruning: a partition's name, ``dropped``, ``trimmed`` and so on, and how many rows were deleted.

    ``looked`` means that there was nothing to trim so far, and that there is more to look at.
    """

    name: str
    outcome: str
    rows: int | None


SEVERITIES = ("error", "warning", "note")
"""How bad a finding of the doctor can be, worst first."""


class Finding(msgspec.Struct, frozen=True):
    """A finding of the doctor: the name of the check, its severity, the problem, why it matters, and the remedy.

    ``subject`` is the name of the queue, schedule or table that it is about. With ``name`` it tells findings apart,
    while the numbers in ``message`` change.
    """

    name: str
    level: Literal["error", "warning", "note"]
    message: str
    reason: str
    fix: str
    subject: str | None = None


class Vital(msgspec.Struct, frozen=True):
    """A number of the whole database: the name of its metric without ``dibs_``, the values of its labels, the value."""

    name: str
    labels: list[str]
    value: float
