# Written by tools/unasync.py from enqueue_async.py: change that and run `make sync`.
"""Enqueues: makes ids, sends jobs, and reads the answers of repeats."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING

from dibs.client.bulk import Bulk, ReadError
from dibs.client.on_loop import expect_no_loop
from dibs.db import calls
from dibs.db.adapters.client import join
from dibs.errors import IdOutOfRange
from dibs.ids import IdMaker
from dibs.job import Enqueued, job_id
from dibs.runtime.points import reach
from dibs.states import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dibs.db.adapters.detect import Connection
    from dibs.db.database import Database
    from dibs.job import NewJob


class Enqueuer:
    """Enqueues jobs under ids made here, so that a repeat after a lost answer adds nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ids: IdMaker | None = None

    def enqueue(self, job: NewJob, conn: Connection | None = None) -> Enqueued:
        """Enqueue one job. If its id is out of range, learn the database's time and make another."""
        self._connect(conn)
        try:
            return self._enqueue(job, self._id_of(job), conn)
        except IdOutOfRange:
            if job.id is not None or not self._relearn_time(conn):
                raise
            return self._enqueue(job, self._id_of(job), conn)

    def _enqueue(self, job: NewJob, id: str, conn: Connection | None) -> Enqueued:
        call = calls.jobs.enqueue(job, id, fresh=job.id is None)
        reach("enqueue.before_send")
        made = self._database.run(call) if conn is None else join(conn, call)
        reach("enqueue.after_send")
        # After a lost answer the call is sent again. Then the duplicate is the job of the first try.
        is_our_own = made.outcome is Answer.DUPLICATE and made.id.hex == id and job.id is None
        return Enqueued(made.id, Answer.ENQUEUED) if is_our_own else made

    def enqueue_many(self, jobs: Iterator[NewJob], conn: Connection | None = None) -> Sequence[Enqueued]:
        """Enqueue jobs, all or none. If an id is out of range, learn the database's time and make others."""
        first_two = list(islice(jobs, 2))
        if len(first_two) == 1:
            return [self.enqueue(first_two[0], conn)]  # One job has a shorter way.
        self._connect(conn)
        bulk = Bulk(chain(first_two, jobs), self._maker())
        try:
            return self._enqueue_many(bulk, conn)
        except ReadError as failed:
            raise failed.error from failed.error.__cause__
        finally:
            bulk.close()

    def _enqueue_many(self, bulk: Bulk, conn: Connection | None) -> Sequence[Enqueued]:
        try:
            return self._send_many(bulk, conn)
        except IdOutOfRange:
            if not bulk.has_made_ids or not self._relearn_time(conn):
                raise
            bulk.make_ids_again(self._maker())
            return self._send_many(bulk, conn)  # The bulk has kept the jobs that it has read.

    def _send_many(self, bulk: Bulk, conn: Connection | None) -> Sequence[Enqueued]:
        reach("enqueue.before_send")
        if conn is None:
            done = self._database.run_each(lambda first: bulk.calls(is_repeat=not first))
        else:
            bulk.read_all()
            done = [join(conn, call) for call in bulk.calls(is_repeat=False)]
        reach("enqueue.after_send")
        return bulk.answers(done)

    def _connect(self, conn: Connection | None) -> None:
        # If the caller gave a connection, open no other: a pooler may have none left.
        if conn is None:
            expect_no_loop()
        (self._database.connect() if conn is None else self._database.check_on(conn))

    def _relearn_time(self, conn: Connection | None) -> bool:
        """Learn the database's time again, so that the next ids are in range.

        On a caller's connection it returns False: the error has ended the transaction. The next enqueue on any caller's
        connection learns the time.
        """
        if conn is not None:
            self._ids = None
            self._database.recheck()
            return False
        self._database.learn_time()
        self._ids = None  # Only now: while we waited, another enqueue may have made a maker by the old time.
        return True

    def _maker(self) -> IdMaker:
        if self._ids is None:
            self._ids = IdMaker(self._database.ahead)
        return self._ids

    def _id_of(self, job: NewJob) -> str:
        return self._maker().make_digits() if job.id is None else job_id(job.id).hex
