"""The client: each verb is a method that calls its SQL function."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from dibs.client.channels_async import AsyncChannels
from dibs.client.enqueue_async import AsyncEnqueuer
from dibs.client.failures_async import AsyncFailures
from dibs.client.find import describe_database, find_database
from dibs.client.groups_async import AsyncGroups
from dibs.client.handle_async import AsyncJob
from dibs.client.limits_async import AsyncLimits
from dibs.client.messages_async import AsyncMessageQueue
from dibs.client.operate_async import AsyncOperating
from dibs.client.queues_async import AsyncQueues
from dibs.client.schedules_async import AsyncSchedules
from dibs.client.stats_async import AsyncStats
from dibs.client.upkeep_async import AsyncUpkeep
from dibs.client.workers_async import AsyncWorkers
from dibs.db import calls
from dibs.db.adapters.client_async import join
from dibs.db.calls.encoder import encoder_of_kind
from dibs.db.database_async import AsyncDatabase
from dibs.db.listen import AsyncBell
from dibs.errors import DibsError, LeaseLost
from dibs.job import Answered, NewJob, job_id, new_jobs, no_such_job
from dibs.progress import progress_json
from dibs.runtime.rest import rest_after
from dibs.runtime.to_end import run_to_end
from dibs.runtime.wake import FAST_POLLS
from dibs.states import Answer, State

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType
    from uuid import UUID

    from dibs.db.adapters.detect import AsyncConnection
    from dibs.db.calls import Call
    from dibs.info import Finding
    from dibs.job import Claimed, Enqueued, Failed, Held, JobOptions
    from dibs.policy import Seconds
    from dibs.progress import Status

R = TypeVar("R")

FIRST_PAUSE = 0.05
"""Seconds until a watch looks again after a change. The pauses grow from there."""


class AsyncClient(AsyncOperating):
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
        self._database = AsyncDatabase(lambda: find_database(dsn), pool_size=pool_size, patience=patience)
        self._enqueuer = AsyncEnqueuer(self._database)
        self._dsn = dsn
        self._bell: AsyncBell | None = None
        self._poll = poll
        self._rescue_at = time.monotonic() + poll
        self.queues = AsyncQueues(self._run)
        self.schedules = AsyncSchedules(self._run)
        self.limits = AsyncLimits(self._run)
        self.groups = AsyncGroups(self._run)
        self.workers = AsyncWorkers(self._run)
        self.stats = AsyncStats(self._run)
        self.failures = AsyncFailures(self._run)
        self.channels = AsyncChannels(self._run)
        self.upkeep = AsyncUpkeep(self._database)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {describe_database(self._dsn)}>"

    async def __aenter__(self) -> Self:
        await self._database.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        try:
            await self._database.close()
        finally:
            if self._bell is not None:
                await self._bell.stop()

    @property
    def dsn(self) -> str:
        """The DSN of the database; found now if none was given."""
        return self._database.dsn

    def message_queue(self, name: str) -> AsyncMessageQueue:
        """Return a queue with the verbs of SQS: send, receive, ack."""
        return AsyncMessageQueue(self, name)

    async def _run(self, call: Call[R], conn: AsyncConnection | None = None) -> R:
        # Only a claim has a `repeat` here. It is not audited, so it needs no actor.
        if conn is None and call.repeat is None and (actor := calls.operate.set_actor()):
            answers = await self._database.run_together([*actor, call])
            answer: R = answers[-1]
            return answer
        if conn is None:
            return await self._database.run(call)
        return await join(conn, call)

    async def enqueue(
        self,
        queue: str,
        kind: str,
        payload: Any = None,
        *,
        id: UUID | None = None,
        conn: AsyncConnection | None = None,
        **options: Unpack[JobOptions],
    ) -> Enqueued:
        """Enqueue one job; with ``conn``, in the transaction of that connection."""
        job: NewJob
        if id is None and not options:
            job = encoder_of_kind(queue, kind).job(payload)
        else:
            job = NewJob(queue=queue, kind=kind, payload=payload, id=id, **options)
        return await self._enqueuer.enqueue(job, conn)

    async def enqueue_many(self, jobs: Iterable[NewJob], *, conn: AsyncConnection | None = None) -> Sequence[Enqueued]:
        """Enqueue many jobs, all or none. The answers are in the same order.

        Jobs of an iterator are sent while it is read, so a million jobs need not fit in memory. With ``conn`` all are
        read first, so that an error of the iterator leaves the transaction as it is.
        """
        return await self._enqueuer.enqueue_many(new_jobs(jobs), conn)

    async def claim(
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
        found = await self._claim_shielded(make_call())
        if found or wait <= 0:
            return found
        if self._bell is None or self._bell.pid != os.getpid():
            self._bell = AsyncBell(self._database.dsn)
        await self._bell.start(min(wait, 1.0))
        return await self._claim_within(make_call, names, end, self._bell)

    # async only
    async def _claim_shielded(self, call: Call[list[Claimed]]) -> list[Claimed]:
        """Send a claim. If we are cancelled meanwhile, the claim still runs to its end, and its jobs are given back."""
        claiming = asyncio.ensure_future(self._run(call))

        async def give_back() -> None:
            with suppress(DibsError):  # We are cancelled, so nobody can be told. Leases end by themselves.
                if jobs := await claiming:
                    await self.release_many(jobs)

        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            await run_to_end(give_back())
            raise

    async def _claim_within(
        self, make_call: Callable[[], Call[list[Claimed]]], names: list[str], end: float, bell: AsyncBell
    ) -> list[Claimed]:
        """Claim after each ring, when the next job is due, and after each poll, until a claim finds jobs or ``end``."""
        polls_after_ring: Iterator[float] = iter(())
        while True:
            heard = bell.rings_of(names)  # Before the claim, so that a ring during it ends the wait below.
            found = await self._claim_shielded(make_call())
            if found or time.monotonic() >= end:
                return found
            nap = next(polls_after_ring, None)
            if nap is None:
                await self._rescue_now_and_then()
                nap = await self._nap(names)
            nap = min(end - time.monotonic(), nap)
            if nap > 0 and await bell.wait(names, heard, nap):
                polls_after_ring = iter(FAST_POLLS)

    async def _nap(self, names: list[str]) -> float:
        """Return for how many seconds to wait for a ring: until the next job is due, or until the next poll."""
        due = await self._run(calls.jobs.wait_hint(names))
        return self._poll if due is None else min(self._poll, due)

    async def _rescue_now_and_then(self) -> None:
        # As in SQS, a message whose lease expired becomes visible again. The rescue is expensive where vacuum cannot
        # keep up, so it rests after each round.
        began = time.monotonic()
        if began >= self._rescue_at:
            self._rescue_at = began + self._poll  # So that other waiting claims of this client do no second rescue.
            await self.upkeep.rescue(100)
            took = time.monotonic() - began
            self._rescue_at = began + max(self._poll, rest_after(took))

    async def extend(self, held: Held, lease: Seconds | None = None, *, progress: Any = None) -> Answer:
        """Renew a lease: ``ok``, ``cancel`` (stop working on it) or ``busy``; raises LeaseLost."""
        progresses = None if progress is None else [progress]
        return _one("extend", await self._run(calls.jobs.extend_many([held], lease, progresses)))

    async def extend_many(
        self,
        held: Sequence[Held],
        lease: Seconds | None = None,
        *,
        progress: Sequence[Any] | None = None,
    ) -> list[Answered]:
        """Renew many leases; answers ``ok``, ``cancel``, ``busy`` or ``lost`` for each."""
        return await self._run(calls.jobs.extend_many(held, lease, progress))

    async def progress(
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
        return _one("progress", await self._run(calls.jobs.progress_many([held], [sent])))

    async def progress_many(self, held: Sequence[Held], progress: Sequence[Mapping[str, Any] | None]) -> list[Answered]:
        """Report the progress of many runs; answers ``ok``, ``cancel``, ``busy`` or ``lost`` for each."""
        return await self._run(calls.jobs.progress_many(held, progress))

    async def complete(
        self,
        held: Held,
        result: Any = None,
        *,
        follow_ups: Iterable[NewJob] = (),
        conn: AsyncConnection | None = None,
    ) -> Answer:
        """End a job as succeeded, with the jobs that follow it: ``ok`` or ``already``; raises LeaseLost."""
        jobs = [job.as_json(job.id, inline=True) for job in follow_ups]
        [answer] = await self._run(calls.jobs.complete_many([held], [result], [jobs] if jobs else None), conn)
        if answer is Answer.LOST:
            raise _lost("complete", held.id)
        return answer

    async def complete_many(
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
        answers = await self._run(calls.jobs.complete_many(held, results, encoded))
        return [Answered(job.id, answer) for job, answer in zip(held, answers, strict=True)]

    async def fail(
        self,
        held: Held,
        error: str | None = None,
        *,
        final: bool = False,
        delay: Seconds | None = None,
    ) -> Failed:
        """Report a run as failed. Return the job's new state; raises LeaseLost."""
        failed = (await self.fail_many([held], [error], finals=[final], delays=[delay]))[0]
        if failed.answer is Answer.LOST:
            raise _lost("fail", held.id)
        return failed

    async def fail_many(
        self,
        held: Sequence[Held],
        errors: Sequence[str | None],
        *,
        finals: Sequence[bool] | None = None,
        delays: Sequence[Seconds | None] | None = None,
    ) -> list[Failed]:
        """Report many runs as failed. Return ``ok``, ``already`` or ``lost`` for each, and the job's new state."""
        return await self._run(
            calls.jobs.fail_many(held, errors, finals or [False] * len(held), delays or [None] * len(held))
        )

    async def snooze(self, held: Held, delay: Seconds) -> Answer:
        """Put a job back to wait, without charging an attempt; raises LeaseLost."""
        return _one("snooze", await self._run(calls.jobs.snooze_many([held], [delay])))

    async def snooze_many(self, held: Sequence[Held], delay: Seconds) -> list[Answered]:
        """Put many jobs back to wait, uncharged; answers ``ok``, ``already`` or ``lost`` for each."""
        return await self._run(calls.jobs.snooze_many(held, [delay] * len(held)))

    async def release(self, held: Held, delay: Seconds | None = None) -> Answer:
        """Give a job back unrun, without charging an attempt; raises LeaseLost."""
        return _one("release", await self._run(calls.jobs.release_many([held], [delay])))

    async def release_many(self, held: Sequence[Held], delay: Seconds | None = None) -> list[Answered]:
        """Give many jobs back unrun; answers ``ok``, ``already`` or ``lost`` for each."""
        return await self._run(calls.jobs.release_many(held, [delay] * len(held)))

    async def cancel(self, id: UUID, reason: str = "cancelled by request") -> Answer:
        """Cancel a job: ``cancelled``, or ``requested`` when it runs; raises UnknownJob and JobEnded."""
        return await self._run(calls.jobs.cancel(id, reason))

    async def cancel_many(self, ids: Sequence[UUID], reason: str = "cancelled by request") -> list[Answered]:
        """Cancel many jobs; answers ``cancelled``, ``requested``, ``ended`` or ``unknown`` for each."""
        return await self._run(calls.jobs.cancel_many(ids, reason))

    async def cancel_key(self, queue: str, dedup_key: str, reason: str = "cancelled by request") -> Answered | None:
        """Cancel the job that holds a dedup key: ``cancelled``, ``requested`` or ``ended``; None when no job does."""
        return await self._run(calls.jobs.cancel_key(queue, dedup_key, reason))

    async def now(self) -> datetime:
        """Return the database's time."""
        return await self._run(calls.schema.now())

    async def doctor(self) -> list[Finding]:
        """Return the problems of the install, the queues and the server, worst first; ``dibs doctor`` checks more."""
        return await self._run(calls.doctor.doctor())

    def job(self, id: UUID | str) -> AsyncJob[Any]:
        """Return a handle on a job by its id. It makes no query yet."""
        return AsyncJob(self, job_id(id))

    async def status(self, id: UUID) -> Status:
        """Return the state of a job, the progress of its run, and its result."""
        return await self._run(calls.jobs.status(id))

    async def status_many(self, ids: Sequence[UUID]) -> list[Status]:
        """Return the status of many jobs, read in one snapshot."""
        return await self._run(calls.jobs.status_many(ids))

    async def watch(self, id: UUID, *, poll: float = 0.5) -> AsyncIterator[Status]:
        """Yield a job's status now and after each change, until the job has ended; raises UnknownJob.

        It looks at least every ``poll`` seconds, and more often after a change. A change that is undone in
        between is not seen. If the job is deleted meanwhile, its last status is ``unknown``.
        """
        seen: Status | None = None
        pause = FIRST_PAUSE
        while seen is None or not seen.has_ended:
            now = await self.status(id)
            if seen is None and now.state is State.UNKNOWN:
                raise no_such_job(id)
            if now != seen:
                seen, pause = now, FIRST_PAUSE
                yield now
            if not now.has_ended:
                await asyncio.sleep(min(pause, poll))
                pause *= 1.5

    async def why(self, id: UUID) -> str:
        """Explain in words why a job waits, who holds it, or how it ended."""
        return await self._run(calls.jobs.why(id))

    async def show(self, id: UUID) -> dict[str, Any] | None:
        """Return all data about a job, with its payload and its attempts."""
        return await self._run(calls.jobs.show(id))


def _one(verb: str, answers: list[Answered]) -> Answer:
    if answers[0].answer is Answer.LOST:
        raise _lost(verb, answers[0].id)
    return answers[0].answer


def _lost(verb: str, id: UUID) -> LeaseLost:
    return LeaseLost(
        f"{verb} refused: this token does not hold job {id}",
        hint="the lease ended and was taken back, or the job has ended; do not report this run again",
    )
