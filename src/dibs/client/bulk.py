"""Bulk enqueues: jobs are sent in chunks, and each is encoded while the server works on those before."""

from __future__ import annotations

from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from dibs.db import calls
from dibs.db.calls.encoder import encode
from dibs.job import BYTES, Enqueued, new_jobs
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
    """Jobs that are read one by one, and the queue and kind of each job read so far."""

    def __init__(self, jobs: Iterable[NewJob]) -> None:
        self.jobs = map(self._note, new_jobs(jobs))
        self.names: list[tuple[str, str]] = []
        self._known: dict[tuple[str, str], tuple[str, str]] = {}

    def _note(self, job: NewJob) -> NewJob:
        names = (job.queue, job.kind)
        self.names.append(self._known.setdefault(names, names))  # One tuple for all jobs of a queue and kind.
        return job


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
        ids = [None if job.id is None else job.id.hex for job in jobs]
        return cls(
            [encode(job) for job in jobs],
            [job.body for job in jobs] if any(isinstance(job.payload, BYTES) for job in jobs) else None,
            ids if any(ids) else None,
            any(job.has_key for job in jobs),
        )


class _Sent(msgspec.Struct):
    """The ids of a chunk, 16 bytes each, and the indexes in it of those that the caller gave."""

    ids: bytes
    given: frozenset[int]

    def digits(self) -> list[str]:
        digits = self.ids.hex()
        return [digits[n : n + 32] for n in range(0, len(digits), 32)]


class Bulk:
    """The jobs of a bulk enqueue, which can be sent again under the same ids. They are read once and kept encoded."""

    def __init__(self, jobs: Iterator[NewJob], ids: IdMaker) -> None:
        self._unread = jobs
        self._maker = ids
        self._kept = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115
        self._sent: list[_Sent] = []
        self._has_key = False
        self._length = 0

    def close(self) -> None:
        """Delete the encoded jobs."""
        self._kept.close()

    @property
    def has_given_ids(self) -> bool:
        """True if the caller gave the id of a job."""
        return any(sent.given for sent in self._sent)

    def read_all(self) -> None:
        """Read all jobs, so that an error in one is raised before the first is sent."""
        for _ in self._chunks():
            pass

    def calls(self, *, first: bool) -> Iterator[Call[Any]]:
        """Make the calls that send the jobs. If it is not the ``first`` time, the server may know the ids."""
        if not first:
            self.read_all()
        # Across statements, a repeat cannot tell its own first job from another with the same key: send all in one.
        if not first and self._has_key:
            yield self._in_one()
        else:
            for chunk, sent in self._chunks():
                yield calls.jobs.enqueue_many(chunk.jobs, sent.digits(), chunk.bodies, fresh=first and not sent.given)

    def make_ids_again(self, ids: IdMaker) -> None:
        """Give the jobs other ids, because these were out of range."""
        self._maker = ids
        for sent in self._sent:
            sent.ids = ids.make_bytes(len(sent.ids) // 16)

    def answers(self, rows: Iterable[Sequence[tuple[int, UUID, str]]]) -> LazyList[Enqueued]:
        """Return the answer for each job. A job without a row was simply enqueued."""
        others: dict[int, Enqueued] = {}
        for n, part in enumerate(rows):
            for item, id, outcome in part:
                index = n * CHUNK + item - 1
                # A repeat that finds the job of the first try has succeeded, unless the caller gave the id.
                is_our_own = outcome == Answer.DUPLICATE and id == self._id(index)
                if not is_our_own or index % CHUNK in self._sent[index // CHUNK].given:
                    others[index] = Enqueued(id, Answer(outcome))
        return LazyList(self._length, lambda index: others.get(index) or Enqueued(self._id(index), Answer.ENQUEUED))

    def _id(self, index: int) -> UUID:
        at = index % CHUNK * 16
        return UUID(bytes=self._sent[index // CHUNK].ids[at : at + 16])

    def _in_one(self) -> Call[Any]:
        chunks = list(self._chunks())
        bodies = [body for chunk, _ in chunks for body in chunk.bodies or [None] * len(chunk.jobs)]
        jobs = [job for chunk, _ in chunks for job in chunk.jobs]
        return calls.jobs.enqueue_many(jobs, [id for _, sent in chunks for id in sent.digits()], bodies, fresh=False)

    def _chunks(self) -> Iterator[tuple[Chunk, _Sent]]:
        """Yield the chunks that were read before, then read the others."""
        self._kept.seek(0)
        for sent in self._sent:
            size = int.from_bytes(self._kept.read(8))
            yield msgspec.msgpack.decode(self._kept.read(size), type=Chunk), sent
        while jobs := list(islice(self._unread, CHUNK)):
            chunk = Chunk.of(jobs)
            self._keep(chunk)
            yield chunk, self._sent[-1]

    def _keep(self, chunk: Chunk) -> None:
        written = msgspec.msgpack.encode(chunk)
        self._kept.write(len(written).to_bytes(8) + written)
        given = frozenset(n for n, id in enumerate(chunk.ids or ()) if id is not None)
        sent = _Sent(self._maker.make_bytes(len(chunk.jobs)), given)
        if chunk.ids is not None:
            mixed = [given or made for given, made in zip(chunk.ids, sent.digits(), strict=True)]
            sent.ids = bytes.fromhex("".join(mixed))
        self._sent.append(sent)
        self._has_key |= chunk.has_key
        self._length += len(chunk.jobs)
