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

        Without weights and slots that is one claim of all queues, which takes by priority and due time. Otherwise each
        queue first gets what it lacks of its part of all places, and then what the others left. The queue that lacks
        most comes first: often there is room for one job only.
        """
        if self._are_default:
            yield list(self._queues), room
            return
        lacking = self._lacking(room)
        for name, lacks in lacking:
            if (count := min(round(lacks), self._free_slots(name, room))) > 0:
                yield [name], count
        for name, _ in lacking:
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

    def _lacking(self, room: int) -> list[tuple[str, float]]:
        """Return each queue and the jobs that it lacks of its part of all places, the queue that lacks most first."""
        places = room + sum(self.in_flight[name] for name in self._queues)
        total = sum(share.weight for share in self._queues.values())
        lacking = [(name, places * share.weight / total - self.in_flight[name]) for name, share in self._queues.items()]
        return sorted(lacking, key=lambda item: -item[1])

    def _free_slots(self, name: str, room: int) -> int:
        slots = self._queues[name].slots
        return room if slots is None else max(0, min(room, slots - self.in_flight[name]))


def _queue(job: Claimed) -> str:
    """The queue's name without the number of the shard."""
    return job.queue.partition("#")[0]
