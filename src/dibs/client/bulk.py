"""Bulk enqueues: jobs are sent in chunks, and each is encoded while the server works on those before."""

from __future__ import annotations

from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from dibs.db import calls
from dibs.db.calls.encoder import encode
from dibs.job import BYTES, Enqueued, job_id, new_jobs
from dibs.lazy import LazyList
from dibs.states import Answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dibs.db.calls import Call
    from dibs.ids import IdMaker
    from dibs.job import NewJob

CHUNK = 1000
"""Jobs in one statement of a bulk enqueue."""

IN_MEMORY = 16_000_000
"""Bytes of encoded jobs kept in memory; more are kept in a temporary file."""


class Noted:
    """Jobs to be sent, and their answers. It notes the queue and kind of each job that is read from ``jobs``."""

    def __init__(self, jobs: Iterable[NewJob]) -> None:
        self.jobs = map(self._note, new_jobs(jobs))
        self.queues_and_kinds: list[tuple[str, str]] = []
        self.answers: Sequence[Enqueued] = ()
        self._known: dict[tuple[str, str], tuple[str, str]] = {}

    def _note(self, job: NewJob) -> NewJob:
        both = (job.queue, job.kind)
        self.queues_and_kinds.append(self._known.setdefault(both, both))  # One tuple for all jobs of a queue and kind.
        return job


def kinds_of(answers: Sequence[Enqueued], sent: Sequence[Noted]) -> Sequence[str | None]:
    """Return the kind of the job of each answer; None if a middleware answers for a job that was not sent."""
    if len(sent) == 1 and sent[0].answers is answers:  # No middleware changed the answers.
        noted = sent[0].queues_and_kinds
        return LazyList(len(noted), lambda n: noted[n][1])
    kinds = {
        answer.id: kind
        for batch in sent
        for (_, kind), answer in zip(batch.queues_and_kinds, batch.answers, strict=True)
    }
    return [kinds.get(answer.id) for answer in answers]


class Chunk(msgspec.Struct):
    """A part of the jobs, encoded."""

    jobs: list[str]
    bodies: list[bytes | None] | None
    ids: list[str | None] | None
    """The ids that the caller gave."""
    has_key: bool

    @classmethod
    def of(cls, jobs: Sequence[NewJob]) -> Chunk:
        """Encode these jobs."""
        ids = [None if job.id is None else job_id(job.id).hex for job in jobs]
        return cls(
            [encode(job) for job in jobs],
            [job.body for job in jobs] if any(isinstance(job.payload, BYTES) for job in jobs) else None,
            ids if any(ids) else None,
            any(job.has_key for job in jobs),
        )


class _ChunkIds(msgspec.Struct):
    """The ids of a chunk, 16 bytes each, and the indexes in it of those that the caller gave."""

    ids: bytes
    given: frozenset[int]

    def digits(self) -> list[str]:
        digits = self.ids.hex()
        return [digits[n : n + 32] for n in range(0, len(digits), 32)]


class ReadError(Exception):
    """An iterator of jobs has raised ``error``. It must not look like an error of our database, which means a repeat.

    The iterator has ended then, so a repeat would send only the jobs before the error.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Bulk:
    """The jobs of a bulk enqueue, which can be sent again under the same ids. They are read once and kept encoded."""

    def __init__(self, jobs: Iterator[NewJob], ids: IdMaker) -> None:
        self._unread = jobs
        self._maker = ids
        self._kept = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115
        self._ids: list[_ChunkIds] = []
        self._has_key = False
        self._length = 0

    def close(self) -> None:
        """Delete the encoded jobs."""
        self._kept.close()

    @property
    def has_made_ids(self) -> bool:
        """True if the id of a job was made here."""
        return any(len(chunk.ids) // 16 > len(chunk.given) for chunk in self._ids)

    def read_all(self) -> None:
        """Read all jobs, so that an error in one is raised before the first is sent."""
        for _ in self._chunks():
            pass

    def calls(self, *, is_repeat: bool) -> Iterator[Call[Any]]:
        """Make the calls that send the jobs. In a repeat, the server may know the ids from the try before."""
        if is_repeat:
            self.read_all()
        if is_repeat and self._has_key:
            # Two jobs may have the same key. If each had its own statement, the second one could not tell whether the
            # first job was made in this try or in the try before. So send all jobs in one statement.
            yield self._in_one_statement()
        else:
            for chunk, ids in self._chunks():
                fresh = not is_repeat and not ids.given
                yield calls.jobs.enqueue_many(chunk.jobs, ids.digits(), chunk.bodies, fresh=fresh)

    def make_ids_again(self, ids: IdMaker) -> None:
        """Give the jobs without an id of the caller other ids, because these were out of range."""
        self._maker = ids
        for chunk in self._ids:
            made = ids.make_bytes(len(chunk.ids) // 16)
            chunk.ids = b"".join(
                (chunk.ids if n in chunk.given else made)[n * 16 : n * 16 + 16] for n in range(len(made) // 16)
            )

    def answers(self, rows: Iterable[Sequence[tuple[int, UUID, str]]]) -> LazyList[Enqueued]:
        """Return the answer for each job. A job without a row was simply enqueued.

        There are rows for each statement, with positions from 1: one for each chunk, or one for all.
        """
        others: dict[int, Enqueued] = {}
        for n, of_statement in enumerate(rows):
            for item, id, outcome in of_statement:
                index = n * CHUNK + item - 1
                # A repeat that finds the job of the first try has succeeded, unless the caller gave the id.
                is_our_own = outcome == Answer.DUPLICATE and id == self._id(index)
                if not is_our_own or index % CHUNK in self._ids[index // CHUNK].given:
                    others[index] = Enqueued(id, Answer(outcome))
        return LazyList(self._length, lambda index: others.get(index) or Enqueued(self._id(index), Answer.ENQUEUED))

    def _id(self, index: int) -> UUID:
        at = index % CHUNK * 16
        return UUID(bytes=self._ids[index // CHUNK].ids[at : at + 16])

    def _in_one_statement(self) -> Call[Any]:
        chunks = list(self._chunks())
        bodies = [body for chunk, _ in chunks for body in chunk.bodies or [None] * len(chunk.jobs)]
        jobs = [job for chunk, _ in chunks for job in chunk.jobs]
        return calls.jobs.enqueue_many(jobs, [id for _, ids in chunks for id in ids.digits()], bodies, fresh=False)

    def _chunks(self) -> Iterator[tuple[Chunk, _ChunkIds]]:
        """Yield the chunks that were read before, then read the others."""
        self._kept.seek(0)
        for ids in self._ids:
            size = int.from_bytes(self._kept.read(8))
            yield msgspec.msgpack.decode(self._kept.read(size), type=Chunk), ids
        while jobs := self._read():
            chunk = Chunk.of(jobs)
            self._keep(chunk)
            yield chunk, self._ids[-1]

    def _read(self) -> list[NewJob]:
        try:
            return list(islice(self._unread, CHUNK))
        except Exception as error:
            raise ReadError(error) from error

    def _keep(self, chunk: Chunk) -> None:
        written = msgspec.msgpack.encode(chunk)
        self._kept.write(len(written).to_bytes(8) + written)
        given = frozenset(n for n, id in enumerate(chunk.ids or ()) if id is not None)
        ids = _ChunkIds(self._maker.make_bytes(len(chunk.jobs)), given)
        if chunk.ids is not None:
            mixed = [given or made for given, made in zip(chunk.ids, ids.digits(), strict=True)]
            ids.ids = bytes.fromhex("".join(mixed))
        self._ids.append(ids)
        self._has_key |= chunk.has_key
        self._length += len(chunk.jobs)
