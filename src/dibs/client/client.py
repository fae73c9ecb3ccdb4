# Written by tools/unasync.py from client_async.py: change that and run `make sync`.
"""The client: every verb as a method, thin over the SQL functions."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from dibs.client.enqueue import Enqueuer
from dibs.client.find import find_database
from dibs.client.handle import Job
from dibs.client.looking import Looking
from dibs.client.operate import Operating
from dibs.client.queue import Queue
from dibs.client.upkeep import Upkeep
from dibs.db import calls
from dibs.db.adapters.client import join
from dibs.db.database import Database
from dibs.db.listen import Bell
from dibs.errors import LeaseLost, UnknownJob, UnknownQueue
from dibs.job import Answered, NewJob, job_id, new_jobs, plain_job
from dibs.progress import progress_json
from dibs.runtime.rest import rest_after
from dibs.runtime.wake import FAST_POLLS
from dibs.states import Answer, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType
    from uuid import UUID

    from dibs.db.adapters.detect import Connection
    from dibs.db.calls import Call
    from dibs.info import Depth, DrainEstimate, Finding, JobSummary, Limit, QueueInfo, Resumed, TaskInfo, WorkerInfo
    from dibs.job import Claimed, Enqueued, Failed, Held, Redriven
    from dibs.policy import GroupPolicy, JobOptions, QueuePolicy, Seconds
    from dibs.progress import Status
    from dibs.shards import Shard
    from dibs.stats import Statistics, Totals

R = TypeVar("R")

WATCH = 0.05
"""How soon a watch looks again after a change; then less and less often."""

PAGE = 10_000
"""How many jobs one step of a list has at most."""


class Client(Operating, Looking):
    """A client of one database.

    ``dsn`` is the database; without it ``DIBS_DSN`` is used, and without that an embedded PostgreSQL is started.
    ``patience`` is how many seconds a call waits for a database that went away or does not answer, ``poll`` how often
    a waiting claim looks for work that no ring announced.
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        pool_size: int = 10,
        patience: float = 30.0,
        poll: float = 1.0,
    ) -> None:
        self._database = Database(lambda: find_database(dsn), pool_size=pool_size, patience=patience)
        self._enqueuer = Enqueuer(self._database)
        self._bell: Bell | None = None
        self._poll = poll
        self._rescue_at = time.monotonic() + poll
        self.upkeep = Upkeep(self._database)

    def __enter__(self) -> Self:
        self._database.connect()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._database.close()
        if self._bell is not None:
            self._bell.stop()

    @property
    def dsn(self) -> str:
        """Where the database is; it is found now if it was not given."""
        return self._database.dsn

    def queue(self, name: str) -> Queue:
        """The queue of that name, as SQS would show it: send, receive, ack."""
        return Queue(self, name)

    def _run(self, call: Call[R], conn: Connection | None = None) -> R:
        if conn is None and call.repeat is None and (actor := calls.operate.acting()):
            answers = self._database.run_together([*actor, call])
            answer: R = answers[-1]
            return answer
        if conn is None:
            return self._database.run(call)
        return join(conn, call)

    def enqueue(
        self,
        queue: str,
        kind: str,
        payload: Any = None,
        *,
        id: UUID | None = None,
        conn: Connection | None = None,
        **options: Unpack[JobOptions],
    ) -> Enqueued:
        """Enqueue one job; with ``conn``, in the transaction of that connection."""
        if id is None and not options:
            job = plain_job(queue, kind, payload)
        else:
            job = NewJob(queue=queue, kind=kind, payload=payload, id=id, **options)
        return self._enqueuer.enqueue(job, conn)

    def enqueue_many(self, jobs: Iterable[NewJob], *, conn: Connection | None = None) -> Sequence[Enqueued]:
        """Put many jobs in, all or none; the answers are in their order.

        What an iterator gives is sent while it goes on, so a million jobs need no memory for all of them.
        """
        return self._enqueuer.enqueue_many(new_jobs(jobs), conn)

    def claim(
        self,
        queues: str | Sequence[str],
        max: int = 1,
        *,
        worker: UUID | None = None,
        lease: Seconds | None = None,
        wait: float = 0.0,
    ) -> list[Claimed]:
        """Take up to ``max`` due jobs under a lease; with none due, wait up to ``wait`` seconds for one."""
        names = [queues] if isinstance(queues, str) else list(queues)

        def ask() -> Call[list[Claimed]]:
            return calls.jobs.claim(names, max, worker, lease)

        end = time.monotonic() + wait
        found = self._run(ask())
        if found or wait <= 0:
            return found
        if self._bell is None or self._bell.pid != os.getpid():
            self._bell = Bell(self._database.dsn)
        self._bell.start(min(wait, 1.0))
        return self._claim_within(ask, names, end, self._bell)

    def _claim_within(
        self, ask: Callable[[], Call[list[Claimed]]], names: list[str], end: float, bell: Bell
    ) -> list[Claimed]:
        fast: Iterator[float] = iter(())
        while True:
            heard = bell.heard(names)
            found = self._run(ask())
            now = time.monotonic()
            if found or now >= end:
                return found
            nap = next(fast, 0.0) or self._nap(names, now)
            nap = min(end - now, nap)
            if nap > 0 and bell.wait(names, heard, nap):
                fast = iter(FAST_POLLS)

    def _nap(self, names: list[str], now: float) -> float:
        """How long to wait for a ring: until the next job is due, or until the next poll."""
        self._rescue_now_and_then(now)
        due = self._run(calls.jobs.wait_hint(names))
        return self._poll if due is None else min(self._poll, due)

    def _rescue_now_and_then(self, now: float) -> None:
        # A waiting receiver does what SQS does by itself: an expired lease becomes visible again. That is
        # expensive where vacuum cannot keep up, so it rests after each round.
        if now >= self._rescue_at:
            self.upkeep.rescue(100)
            took = time.monotonic() - now
            self._rescue_at = now + max(self._poll, rest_after(took))

    def extend(self, held: Held, lease: Seconds | None = None, *, progress: Any = None) -> Answer:
        """Renew a lease: ``ok``, ``cancel`` (stop working on it) or ``busy``; raises LeaseLost."""
        progresses = None if progress is None else [progress]
        return _one("extend", self._run(calls.jobs.extend_many([held], lease, progresses)))

    def extend_many(
        self,
        held: Sequence[Held],
        lease: Seconds | None = None,
        *,
        progress: Sequence[Any] | None = None,
    ) -> list[Answered]:
        """Renew many leases; answers ``ok``, ``cancel``, ``busy`` or ``lost`` for each."""
        return self._run(calls.jobs.extend_many(held, lease, progress))

    def report(
        self,
        held: Held,
        done: float | None = None,
        of: float | None = 1,
        *,
        message: str | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Say how far a run has come: ``0.3``, or ``3`` of ``10``; ``ok``, ``cancel`` or ``busy``; raises LeaseLost."""
        told = progress_json(done, of, message=message, data=data)
        return _one("report", self._run(calls.jobs.report_many([held], [told])))

    def report_many(self, held: Sequence[Held], progress: Sequence[Mapping[str, Any] | None]) -> list[Answered]:
        """Say how far many runs have come; answers ``ok``, ``cancel``, ``busy`` or ``lost`` for each."""
        return self._run(calls.jobs.report_many(held, progress))

    def complete(
        self,
        held: Held,
        result: Any = None,
        *,
        follow_ups: Iterable[NewJob] = (),
        conn: Connection | None = None,
    ) -> Answer:
        """End a job as succeeded, with the jobs that follow it: ``ok`` or ``already``; raises LeaseLost."""
        jobs = [job.as_json(job.id, inline=True) for job in follow_ups]
        [answer] = self._run(calls.jobs.complete_many([held], [result], [jobs] if jobs else None), conn)
        if answer is Answer.LOST:
            raise _lost("complete", held.id)
        return answer

    def complete_many(
        self,
        held: Sequence[Held],
        results: Sequence[Any] | None = None,
        *,
        follow_ups: Sequence[Iterable[NewJob]] | None = None,
    ) -> list[Answered]:
        """End many jobs as succeeded, each with those that follow it; ``ok``, ``already`` or ``lost`` for each."""
        following = [[job.as_json(job.id, inline=True) for job in jobs] for jobs in follow_ups or ()]
        answers = self._run(calls.jobs.complete_many(held, results, following or None))
        return [Answered(h.id, answer) for h, answer in zip(held, answers, strict=True)]

    def fail(
        self,
        held: Held,
        error: str | None = None,
        *,
        final: bool = False,
        delay: Seconds | None = None,
    ) -> Failed:
        """Report a run as failed: says where the job went; raises LeaseLost."""
        failed = (self.fail_many([held], [error], finals=[final], delays=[delay]))[0]
        if failed.answer is Answer.LOST:
            raise _lost("fail", held.id)
        return failed

    def fail_many(
        self,
        held: Sequence[Held],
        errors: Sequence[str | None],
        *,
        finals: Sequence[bool] | None = None,
        delays: Sequence[Seconds | None] | None = None,
    ) -> list[Failed]:
        """Report many runs as failed; each answer says ``ok``, ``already`` or ``lost`` and where the job went."""
        return self._run(
            calls.jobs.fail_many(held, errors, finals or [False] * len(held), delays or [None] * len(held))
        )

    def snooze(self, held: Held, delay: Seconds) -> Answer:
        """Put a job back to wait, without charging an attempt; raises LeaseLost."""
        return _one("snooze", self._run(calls.jobs.snooze_many([held], [delay])))

    def snooze_many(self, held: Sequence[Held], delay: Seconds) -> list[Answered]:
        """Put many jobs back to wait, uncharged; answers ``ok``, ``already`` or ``lost`` for each."""
        return self._run(calls.jobs.snooze_many(held, [delay] * len(held)))

    def release(self, held: Held, delay: Seconds | None = None) -> Answer:
        """Give a job back unrun, without charging an attempt; raises LeaseLost."""
        return _one("release", self._run(calls.jobs.release_many([held], [delay])))

    def release_many(self, held: Sequence[Held], delay: Seconds | None = None) -> list[Answered]:
        """Give many jobs back unrun; answers ``ok``, ``already`` or ``lost`` for each."""
        return self._run(calls.jobs.release_many(held, [delay] * len(held)))

    def cancel(self, id: UUID, reason: str = "cancelled by request") -> Answer:
        """Cancel a job: ``cancelled``, or ``requested`` when it runs; raises UnknownJob and JobEnded."""
        return self._run(calls.jobs.cancel(id, reason))

    def cancel_many(self, ids: Sequence[UUID], reason: str = "cancelled by request") -> list[Answered]:
        """Cancel many jobs; answers ``cancelled``, ``requested``, ``ended`` or ``unknown`` for each."""
        return self._run(calls.jobs.cancel_many(ids, reason))

    def cancel_key(self, queue: str, dedup_key: str, reason: str = "cancelled by request") -> Answered | None:
        """Cancel the job that holds a dedup key: ``cancelled``, ``requested`` or ``ended``; None when no job does."""
        return self._run(calls.jobs.cancel_key(queue, dedup_key, reason))

    def redrive(
        self,
        ids: Sequence[UUID] | None = None,
        *,
        queue: str | None = None,
        kind: str | None = None,
        state: str | None = None,
        reason: str | None = None,
        ended_after: datetime | None = None,
        ended_before: datetime | None = None,
        max: int = 1000,
        rate: float | None = None,
        delay: float = 0.0,
        dry_run: bool = False,
        after: UUID | None = None,
    ) -> list[Redriven]:
        """Bring dead jobs back, by id or by filter, at most ``max``; ``rate`` is how many per second.

        A filter leaves cancelled jobs alone unless ``state`` is ``cancelled``; a due time still ahead is kept. To go on
        after the last one of a list, give its ``ended_at`` as ``ended_after`` and its ``id`` as ``after``.
        """
        filters = {
            "ids": ids,
            "queue": queue,
            "kind": kind,
            "state": state,
            "reason": reason,
            "ended_after": ended_after,
            "ended_before": ended_before,
            "after": after,
        }
        return self._run(calls.jobs.redrive(filters, max=max, rate=rate, delay=delay, dry_run=dry_run))

    def statistics(
        self,
        queue: str | None = None,
        kind: str | None = None,
        *,
        since: Seconds = 3600,
        every: Seconds | None = None,
    ) -> list[Statistics]:
        """What happened in the last ``since`` seconds, by queue and kind; ``every`` splits it into periods."""
        return self._run(calls.statistics.statistics(queue, kind, since, every))

    def totals(self, queue: str | None = None, kind: str | None = None) -> list[Totals]:
        """Each kind's totals, its last run, and its averages over the last hour, day and week."""
        return self._run(calls.statistics.totals(queue, kind))

    def pause(self, queue: str) -> bool:
        """Stop handing out a queue's jobs; whether it was running before."""
        return self._run(calls.queues.pause(queue))

    def resume(self, queue: str, *, extend: Seconds | None = None) -> Resumed:
        """Hand out a queue's jobs again; ``extend`` lets those past their time live that much longer."""
        return self._run(calls.queues.resume(queue, extend))

    def set_queue(self, name: str, **policy: Unpack[QueuePolicy]) -> None:
        """Make a queue, or change its policy while it runs."""
        self._run(calls.queues.set_queue(name, policy))

    def set_group(self, queue: str, name: str | None = None, **policy: Unpack[GroupPolicy]) -> None:
        """Set weight, concurrency or rate of a group, or of every group of the queue without its own settings."""
        self._run(calls.groups.set_group(queue, name, policy))

    def unset_group(self, queue: str, name: str | None = None) -> bool:
        """Take away what was set for a group; whether something was."""
        return self._run(calls.groups.unset_group(queue, name))

    def set_limit(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        resource: str | None = None,
        concurrency: int | None = None,
        rate: float | None = None,
        burst: int | None = None,
    ) -> None:
        """Limit how many jobs of a queue or kind run at once or start per second; of a resource, how many units it has
        and how many jobs that name it start per second."""
        target = {"queue": queue, "kind": kind, "resource": resource}
        self._run(calls.limits.set_limit(target, concurrency, rate, burst))

    def unset_limit(self, *, queue: str | None = None, kind: str | None = None, resource: str | None = None) -> bool:
        """Take a limit away: true when that is done; raises UnknownLimit."""
        return self._run(calls.limits.unset_limit({"queue": queue, "kind": kind, "resource": resource}))

    def limits(self) -> list[Limit]:
        """Every limit that was set, with what is used of it and by whom."""
        return self._run(calls.limits.limits())

    def set_strict(self, strict: bool) -> None:
        """Refuse enqueues to queues that do not exist, or let them make the queue."""
        self._run(calls.queues.set_strict(strict))

    def workers(self) -> list[WorkerInfo]:
        """Every process that registered, with when it was last seen and how many jobs it holds."""
        return self._run(calls.workers.workers())

    def stop_worker(self, number: int) -> Answer:
        """Ask a worker to stop, as SIGTERM would: ``requested``; raises UnknownWorker."""
        return self._run(calls.workers.stop_worker(number))

    def doctor(self) -> list[Finding]:
        """What is wrong with the install, the queues and the server, worst first; ``dibs doctor`` looks at more."""
        return self._run(calls.doctor.doctor())

    def tasks(self) -> list[TaskInfo]:
        """Every task that a worker has registered: kind, queue, arguments, options."""
        return self._run(calls.workers.tasks())

    def shards(self, queue: str | None = None) -> list[Shard]:
        """Every exclusive queue and shard, and who holds it."""
        return self._run(calls.shards.shards(queue))

    def queues(self) -> list[QueueInfo]:
        """Every queue and its policy."""
        return self._run(calls.queues.queues())

    def depth(self, queue: str) -> Depth:
        """How many jobs of a queue are in each state; zeros when it is empty or unknown."""
        return self._run(calls.queues.depth(queue))

    def depths(self) -> list[Depth]:
        """The depth of every queue, in one look."""
        return self._run(calls.queues.depths())

    def drain_estimate(self, queue: str, span: Seconds = 300.0) -> DrainEstimate:
        """When a queue's backlog will be gone, if it goes on as in the last ``span`` seconds."""
        return self._run(calls.queues.drain_estimate(queue, span))

    def jobs(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        state: str | Sequence[str] | None = None,
        limit: int = 50,
        before: UUID | None = None,
    ) -> list[JobSummary]:
        """Jobs, newest first, in one state or in any of several; ``before`` continues after the job with that id.

        Looks until it has found ``limit`` of them or has seen all, in short steps; ``find_jobs`` is one such step. A
        queue that does not exist has no jobs.
        """
        states = [state] if isinstance(state, str) else state and list(state)
        given = {"queue": queue, "kind": kind, "states": states}
        filter: Any = {name: value for name, value in given.items() if value is not None}
        found: list[JobSummary] = []
        while len(found) < limit:
            try:
                page = self.find_jobs(filter, limit=min(limit - len(found), PAGE), before=before)
            except UnknownQueue:
                return []
            found += page.jobs
            before = page.next
            if before is None:
                break
        return found

    def job(self, id: UUID | str) -> Job[Any]:
        """A handle on a job that is known by its id; nothing is asked yet."""
        return Job(self, job_id(id))

    def state(self, id: UUID) -> State:
        """What a job is now."""
        return (self.states([id]))[0]

    def states(self, ids: Sequence[UUID]) -> list[State]:
        """What many jobs are now, read in one snapshot."""
        return self._run(calls.jobs.states(ids))

    def status(self, id: UUID) -> Status:
        """What a job is now, and how far its run has come."""
        return self._run(calls.jobs.status(id))

    def result(self, id: UUID) -> Any:
        """What a job's last successful run returned; None before that, and where no history is kept."""
        return self._run(calls.jobs.result(id))

    def watch(self, id: UUID, *, poll: float = 0.5) -> Iterator[Status]:
        """A job's status now and each time it has changed, until the job has ended; raises UnknownJob.

        It looks at least every ``poll`` seconds, and more often after a change. A change that is undone in
        between is not seen.
        """
        seen: Status | None = None
        pause = WATCH
        while seen is None or not seen.has_ended:
            now = self.status(id)
            if seen is None and now.state is State.UNKNOWN:
                raise UnknownJob(f"there is no job {id}", hint="it was never committed, or it was pruned")
            if now != seen:
                seen, pause = now, WATCH
                yield now
            if not now.has_ended:
                time.sleep(min(pause, poll))
                pause *= 1.5

    def why(self, id: UUID) -> str:
        """Explain in words what a job waits for, who holds it, or how it ended."""
        return self._run(calls.jobs.why(id))

    def show(self, id: UUID) -> dict[str, Any] | None:
        """Everything known of a job, with its payload and its attempts."""
        return self._run(calls.jobs.show(id))


def _one(verb: str, answers: list[Answered]) -> Answer:
    if answers[0].answer is Answer.LOST:
        raise _lost(verb, answers[0].id)
    return answers[0].answer


def _lost(verb: str, id: UUID) -> LeaseLost:
    return LeaseLost(
        f"{verb} refused: this token does not hold job {id}",
        hint="the lease ended and was taken back, or the job has ended; do not report this run again",
    )
