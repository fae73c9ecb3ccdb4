# Written by tools/unasync.py from client_async.py: change that and run `make sync`.
"""The client: each verb is a method that calls its SQL function."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from dibs.client.channels import Channels
from dibs.client.enqueue import Enqueuer
from dibs.client.failures import Failures
from dibs.client.find import describe_database, find_database
from dibs.client.groups import Groups
from dibs.client.handle import Job
from dibs.client.limits import Limits
from dibs.client.messages import MessageQueue
from dibs.client.operate import Operating
from dibs.client.queues import Queues
from dibs.client.schedules import Schedules
from dibs.client.stats import Stats
from dibs.client.upkeep import Upkeep
from dibs.client.workers import Workers
from dibs.db import calls
from dibs.db.adapters.client import join
from dibs.db.calls.encoder import encoder_of_kind
from dibs.db.database import Database
from dibs.db.listen import Bell
from dibs.errors import LeaseLost
from dibs.job import Answered, NewJob, job_id, new_jobs, no_such_job
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
    from dibs.info import Finding
    from dibs.job import Claimed, Enqueued, Failed, Held, JobOptions
    from dibs.policy import Seconds
    from dibs.progress import Status

R = TypeVar("R")

FIRST_PAUSE = 0.05
"""Seconds until a watch looks again after a change. The pauses grow from there."""


class Client(Operating):
    """A client of one database.

    ``dsn`` is the database; without it ``DIBS_DSN`` is used, and without that an embedded PostgreSQL is started.
    ``patience`` is how many seconds a call waits for a database that is away or does not answer, ``poll`` how many
    seconds a waiting claim lets pass between looks for work that no ring announced.
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
        self._dsn = dsn
        self._bell: Bell | None = None
        self._poll = poll
        self._rescue_at = time.monotonic() + poll
        self.queues = Queues(self._run)
        self.schedules = Schedules(self._run)
        self.limits = Limits(self._run)
        self.groups = Groups(self._run)
        self.workers = Workers(self._run)
        self.stats = Stats(self._run)
        self.failures = Failures(self._run)
        self.channels = Channels(self._run)
        self.upkeep = Upkeep(self._database)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {describe_database(self._dsn)}>"

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
        try:
            self._database.close()
        finally:
            if self._bell is not None:
                self._bell.stop()

    @property
    def dsn(self) -> str:
        """The DSN of the database; found now if none was given."""
        return self._database.dsn

    def message_queue(self, name: str) -> MessageQueue:
        """Return a queue with the verbs of SQS: send, receive, ack."""
        return MessageQueue(self, name)

    def _run(self, call: Call[R], conn: Connection | None = None) -> R:
        # Only a claim has a `repeat` here. It is not audited, so it needs no actor.
        if conn is None and call.repeat is None and (actor := calls.operate.set_actor()):
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
        job: NewJob
        if id is None and not options:
            job = encoder_of_kind(queue, kind).job(payload)
        else:
            job = NewJob(queue=queue, kind=kind, payload=payload, id=id, **options)
        return self._enqueuer.enqueue(job, conn)

    def enqueue_many(self, jobs: Iterable[NewJob], *, conn: Connection | None = None) -> Sequence[Enqueued]:
        """Enqueue many jobs, all or none. The answers are in the same order.

        Jobs of an iterator are sent while it is read, so a million jobs need not fit in memory. With ``conn`` all are
        read first, so that an error of the iterator leaves the transaction as it is.
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

        def make_call() -> Call[list[Claimed]]:
            return calls.jobs.claim(names, max, worker, lease)

        end = time.monotonic() + wait
        found = self._run(make_call())
        if found or wait <= 0:
            return found
        if self._bell is None or self._bell.pid != os.getpid():
            self._bell = Bell(self._database.dsn)
        self._bell.start(min(wait, 1.0))
        return self._claim_within(make_call, names, end, self._bell)

    def _claim_within(
        self, make_call: Callable[[], Call[list[Claimed]]], names: list[str], end: float, bell: Bell
    ) -> list[Claimed]:
        """Claim after each ring, when the next job is due, and after each poll, until a claim finds jobs or ``end``."""
        polls_after_ring: Iterator[float] = iter(())
        while True:
            heard = bell.rings_of(names)  # Before the claim, so that a ring during it ends the wait below.
            found = self._run(make_call())
            if found or time.monotonic() >= end:
                return found
            nap = next(polls_after_ring, None)
            if nap is None:
                self._rescue_now_and_then()
                nap = self._nap(names)
            nap = min(end - time.monotonic(), nap)
            if nap > 0 and bell.wait(names, heard, nap):
                polls_after_ring = iter(FAST_POLLS)

    def _nap(self, names: list[str]) -> float:
        """Return for how many seconds to wait for a ring: until the next job is due, or until the next poll."""
        due = self._run(calls.jobs.wait_hint(names))
        return self._poll if due is None else min(self._poll, due)

    def _rescue_now_and_then(self) -> None:
        # As in SQS, a message whose lease expired becomes visible again. The rescue is expensive where vacuum cannot
        # keep up, so it rests after each round.
        began = time.monotonic()
        if began >= self._rescue_at:
            self._rescue_at = began + self._poll  # So that other waiting claims of this client do no second rescue.
            self.upkeep.rescue(100)
            took = time.monotonic() - began
            self._rescue_at = began + max(self._poll, rest_after(took))

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

    def progress(
        self,
        held: Held,
        done: float | None = None,
        of: float | None = 1,
        *,
        message: str | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Report progress: ``0.3``, or ``3`` of ``10``. Answers ``ok``, ``cancel`` or ``busy``; raises LeaseLost."""
        sent = progress_json(done, of, message=message, data=data)
        return _one("progress", self._run(calls.jobs.progress_many([held], [sent])))

    def progress_many(self, held: Sequence[Held], progress: Sequence[Mapping[str, Any] | None]) -> list[Answered]:
        """Report the progress of many runs; answers ``ok``, ``cancel``, ``busy`` or ``lost`` for each."""
        return self._run(calls.jobs.progress_many(held, progress))

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
        encoded = None
        if follow_ups:
            encoded = [[job.as_json(job.id, inline=True) for job in jobs] for jobs in follow_ups]
        answers = self._run(calls.jobs.complete_many(held, results, encoded))
        return [Answered(job.id, answer) for job, answer in zip(held, answers, strict=True)]

    def fail(
        self,
        held: Held,
        error: str | None = None,
        *,
        final: bool = False,
        delay: Seconds | None = None,
    ) -> Failed:
        """Report a run as failed. Return the job's new state; raises LeaseLost."""
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
        """Report many runs as failed. Return ``ok``, ``already`` or ``lost`` for each, and the job's new state."""
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

    def now(self) -> datetime:
        """Return the database's time."""
        return self._run(calls.schema.now())

    def doctor(self) -> list[Finding]:
        """Return the problems of the install, the queues and the server, worst first; ``dibs doctor`` checks more."""
        return self._run(calls.doctor.doctor())

    def job(self, id: UUID | str) -> Job[Any]:
        """Return a handle on a job by its id. It makes no query yet."""
        return Job(self, job_id(id))

    def status(self, id: UUID) -> Status:
        """Return the state of a job, the progress of its run, and its result."""
        return self._run(calls.jobs.status(id))

    def status_many(self, ids: Sequence[UUID]) -> list[Status]:
        """Return the status of many jobs, read in one snapshot."""
        return self._run(calls.jobs.status_many(ids))

    def watch(self, id: UUID, *, poll: float = 0.5) -> Iterator[Status]:
        """Yield a job's status now and after each change, until the job has ended; raises UnknownJob.

        It looks at least every ``poll`` seconds, and more often after a change. A change that is undone in
        between is not seen. If the job is deleted meanwhile, its last status is ``unknown``.
        """
        seen: Status | None = None
        pause = FIRST_PAUSE
        while seen is None or not seen.has_ended:
            now = self.status(id)
            if seen is None and now.state is State.UNKNOWN:
                raise no_such_job(id)
            if now != seen:
                seen, pause = now, FIRST_PAUSE
                yield now
            if not now.has_ended:
                time.sleep(min(pause, poll))
                pause *= 1.5

    def why(self, id: UUID) -> str:
        """Explain in words why a job waits, who holds it, or how it ended."""
        return self._run(calls.jobs.why(id))

    def show(self, id: UUID) -> dict[str, Any] | None:
        """Return all data about a job, with its payload and its attempts."""
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
