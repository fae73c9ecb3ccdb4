"""The life of a job as a Python model, with which SQL is compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID

LEASE = timedelta(seconds=30)
DELAY = timedelta(seconds=10)
TTL = timedelta(hours=1)
MAX_ATTEMPTS = 3
ENDED = {"succeeded", "failed", "exhausted", "expired", "cancelled"}


@dataclass
class Job:
    """One job of the model: where its ticket is and what it carries."""

    id: UUID
    queue: str
    priority: int
    due: datetime
    expire: datetime
    key: str | None = None
    scope: str | None = None
    kind: str = "k"
    group: str | None = None
    place: str = "ready"
    charged: int = 0
    run: int = 0
    token: UUID | None = None
    until: datetime | None = None
    cancel: bool = False
    ended: datetime | None = None
    attempts: list[str] = field(default_factory=list)

    def state(self, now: datetime) -> str:
        if self.place == "ready":
            return "scheduled" if self.due > now else "ready"
        return "running" if self.place == "lease" else self.place


@dataclass
class Model:
    """All jobs and queues, and what each verb does to them."""

    now: datetime
    jobs: dict[UUID, Job] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    keys: dict[tuple[str, str], Job] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    waits: dict[tuple[str, str | None], Job] = field(default_factory=dict)

    def may_start(self, job: Job) -> bool:
        """Whether the limits of its kind and its group let a job start; a strict group also its place."""
        running = [j for j in self.jobs.values() if j.place == "lease"]
        if sum(j.kind == job.kind for j in running) >= self.kinds.get(job.kind, 1000):
            return False
        mine = [j for j in running if (j.queue, j.group) == (job.queue, job.group)]
        if job.group is None or len(mine) < self.groups.get(job.group, 1000) != 1:
            return True
        return not mine and job in self._heads(job)

    def _heads(self, job: Job) -> list[Job]:
        line = [j for j in self.claimable([job.queue]) if j.group == job.group]
        began = self.waits.get((job.queue, job.group))
        if began and began.place == "ready" and self.now < began.expire:
            return [began]
        return line[:1] + ([began] if began else [])

    def holder_of(self, queue: str, key: str | None) -> Job | None:
        holder = self.keys.get((queue, key)) if key else None
        held = {"ready"} if holder and holder.scope == "waiting" else {"ready", "lease"}
        return holder if holder and holder.place in held else None

    def enqueue(self, job: Job, *, replace: bool) -> tuple[Job, str]:
        holder, outcome = self.holder_of(job.queue, job.key), "enqueued"
        if holder and not replace:
            return holder, "duplicate"
        if holder and holder.place == "ready":
            self._bury(holder, "cancelled")
            outcome = "replaced"
        self.jobs[job.id] = job
        self._take(job)
        return job, outcome

    def _take(self, job: Job) -> None:
        if job.key:
            self.keys[job.queue, job.key] = job

    def _free(self, job: Job) -> None:
        if job.key and self.keys.get((job.queue, job.key)) is job:
            del self.keys[job.queue, job.key]

    def claimable(self, queues: list[str]) -> list[Job]:
        due = [
            j
            for j in self.jobs.values()
            if j.place == "ready" and j.queue in queues and j.queue not in self.paused and j.due <= self.now < j.expire
        ]
        return sorted(due, key=lambda j: (-j.priority, j.due, j.id))

    def claim(self, job: Job, token: UUID) -> None:
        job.place, job.token, job.until, job.cancel = "lease", token, self.now + LEASE, False
        job.run += 1
        job.charged += 1

    def held(self, job: Job, token: UUID) -> bool:
        return job.place == "lease" and job.token == token

    def complete(self, job: Job) -> None:
        self._leave(job, "succeeded")
        job.place = "succeeded"
        self._free(job)

    def fail(self, job: Job, *, final: bool) -> None:
        self._put_back(job, "failed", self.now + DELAY, dead="failed" if final else None)

    def snooze(self, job: Job, delay: timedelta) -> None:
        self._put_back(job, "snoozed", self.now + delay)

    def release(self, job: Job) -> None:
        self._put_back(job, "released", job.due)

    def rescue(self) -> set[UUID]:
        lost = [j for j in self.jobs.values() if j.place == "lease" and j.until is not None and j.until <= self.now]
        for job in lost:
            self._put_back(job, "lost", self.now)
        return {j.id for j in lost}

    def cancel(self, job: Job) -> str:
        if job.place == "ready":
            self._bury(job, "cancelled")
            return "cancelled"
        if job.place == "lease":
            job.cancel = True
            return "requested"
        return "ended"

    def expire(self) -> int:
        late = [
            j for j in self.jobs.values() if j.place == "ready" and j.expire <= self.now and j.queue not in self.paused
        ]
        for job in late:
            self._bury(job, "expired")
        return len(late)

    def retry(self, job: Job) -> str:
        if self.holder_of(job.queue, job.key):
            return "duplicate"
        due = max(job.due, self.now)
        job.place, job.due, job.expire, job.charged = "ready", due, due + TTL, 0
        self._take(job)
        return "back"

    def _put_back(self, job: Job, outcome: str, due: datetime, dead: str | None = None) -> None:
        if job.cancel:
            dead = outcome = "cancelled"
        elif dead is None and outcome in {"failed", "lost"} and job.charged >= MAX_ATTEMPTS:
            dead = "exhausted"
        self._leave(job, outcome)
        if outcome in {"snoozed", "released"}:
            job.charged -= 1
        if dead:
            self._bury(job, dead)
        else:
            job.place, job.due = "ready", due
            self.waits[job.queue, job.group] = job

    def _leave(self, job: Job, outcome: str) -> None:
        job.attempts.append(outcome)
        job.until = None

    def _bury(self, job: Job, state: str) -> None:
        job.place, job.ended = state, self.now
        self._free(job)
