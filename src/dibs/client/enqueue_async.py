"""Enqueueing: the ids of new jobs, the statements that carry them, and what a repeat may say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.db import calls
from dibs.db.adapters.client_async import join
from dibs.errors import IdOutOfRange
from dibs.ids import IdMaker
from dibs.job import Enqueued
from dibs.runtime.points import reach
from dibs.states import Answer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from dibs.db.adapters.detect import AsyncConnection
    from dibs.db.calls import Call
    from dibs.db.database_async import AsyncDatabase
    from dibs.job import NewJob

CHUNK = 1000
"""How many jobs one statement of a bulk enqueue carries."""


class AsyncEnqueuer:
    """Puts jobs in under ids made here, so that repeating after a lost answer adds nothing."""

    def __init__(self, database: AsyncDatabase) -> None:
        self._database = database
        self._ids: IdMaker | None = None

    async def enqueue(self, jobs: Sequence[NewJob], conn: AsyncConnection | None = None) -> list[Enqueued]:
        """Put jobs in, all or none; an id that is out of range is made again by the database's time of now."""
        try:
            return await self._enqueue(jobs, conn)
        except IdOutOfRange:
            if any(job.id is not None for job in jobs):
                raise
            self._ids = None
            if conn is not None:
                self._database.forget_time()
                raise
            await self._database.learn_time()
            return await self._enqueue(jobs, conn)

    async def _enqueue(self, jobs: Sequence[NewJob], conn: AsyncConnection | None) -> list[Enqueued]:
        # With a connection of the caller's no other is opened: a pooler may have none left.
        await (self._database.connect() if conn is None else self._database.check_on(conn))
        ids = self._ids_of(jobs)
        all_ours = all(job.id is None for job in jobs)
        first = _statements(jobs, ids, fresh=all_ours)
        reach("enqueue.before_send")
        if conn is None:
            done = await self._database.run_together(first, lambda: _statements(jobs, ids, fresh=False))
        else:
            done = [await join(conn, call) for call in first]
        reach("enqueue.after_send")
        made: list[Enqueued] = [enqueued for part in done for enqueued in part]
        return _as_asked(made, ids) if all_ours else made

    def _ids_of(self, jobs: Sequence[NewJob]) -> list[UUID]:
        if self._ids is None:
            self._ids = IdMaker(self._database.ahead)
        made = iter(self._ids.make(sum(job.id is None for job in jobs)))
        return [job.id or next(made) for job in jobs]


def _statements(jobs: Sequence[NewJob], ids: Sequence[UUID], *, fresh: bool) -> list[Call[list[Enqueued]]]:
    # Two jobs of one key are told apart from a repeat of both only if they come in one statement.
    in_one = not fresh and any(job.has_key for job in jobs)
    size = max(len(jobs), 1) if in_one else CHUNK
    parts = [slice(n, n + size) for n in range(0, len(jobs), size)]
    return [calls.jobs.enqueue_many(jobs[part], ids[part], fresh=fresh) for part in parts]


def _as_asked(made: Sequence[Enqueued], ids: Sequence[UUID]) -> list[Enqueued]:
    """A repeat that finds the first try's job has done what was asked."""
    return [
        Enqueued(id, Answer.ENQUEUED) if e.outcome is Answer.DUPLICATE and e.id == id else e
        for e, id in zip(made, ids, strict=True)
    ]
