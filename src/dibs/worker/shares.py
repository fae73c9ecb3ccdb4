"""Which queues to claim from next, and how many jobs: by each queue's weight and its slots."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dibs.worker_settings import Share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dibs.job import Claimed
    from dibs.worker.run_end import RunEnd


class Shares:
    """Divides the room among the queues, and counts the jobs in flight of each."""

    def __init__(self, queues: Mapping[str, Share]) -> None:
        self._queues = queues
        self._are_default = all(share == Share() for share in queues.values())
        self.in_flight: Counter[str] = Counter()
        """Counted only if a queue has a weight or slots."""

    def claims(self, room: int) -> Iterator[tuple[list[str], int]]:
        """Yield the queues and the number of jobs of one claim after another; stop when the room is full.

        Without weights and slots that is one claim of all queues, which takes by priority and due time. Otherwise
        each queue first gets its part of the room, and then what the others left of theirs.
        """
        if self._are_default:
            yield list(self._queues), room
            return
        total = sum(share.weight for share in self._queues.values())
        for name, share in self._by_weight():
            if count := min(round(room * share.weight / total) or 1, self._free_slots(name, room)):
                yield [name], count
        for name, _ in self._by_weight():
            if count := self._free_slots(name, room):
                yield [name], count

    def add(self, jobs: Sequence[Claimed]) -> None:
        """Count jobs that were claimed."""
        if not self._are_default:
            self.in_flight.update(_queue(job) for job in jobs)

    def remove(self, ends: Sequence[RunEnd]) -> None:
        """Count jobs that have ended."""
        if not self._are_default:
            self.in_flight.subtract(_queue(end.job) for end in ends)

    def _by_weight(self) -> list[tuple[str, Share]]:
        return sorted(self._queues.items(), key=lambda item: -item[1].weight)

    def _free_slots(self, name: str, room: int) -> int:
        slots = self._queues[name].slots
        return room if slots is None else max(0, min(room, slots - self.in_flight[name]))


def _queue(job: Claimed) -> str:
    """The queue's name without the number of the shard."""
    return job.queue.partition("#")[0]
