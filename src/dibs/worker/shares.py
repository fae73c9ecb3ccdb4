"""Which queues to claim from next, and how many: by each queue's weight and its own slots."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dibs.worker_settings import Share

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dibs.job import Claimed
    from dibs.worker.run_end import RunEnd


class Shares:
    """Divides the room among the queues, and keeps count of what each has in hand."""

    def __init__(self, queues: Mapping[str, Share]) -> None:
        self._queues = queues
        self._plain = all(share == Share() for share in queues.values())
        self.in_hand: Counter[str] = Counter()

    def claims(self, room: int) -> Iterator[tuple[list[str], int]]:
        """What to ask for, one claim after the other; stop when the room is full.

        Without weights and limits that is one claim of all queues, which takes by priority and due time. Otherwise
        each queue gets its part of the room first, and then what the others left of theirs.
        """
        if self._plain:
            yield list(self._queues), room
            return
        total = sum(share.weight for share in self._queues.values())
        for name, share in self._by_weight():
            if count := min(round(room * share.weight / total) or 1, self._left(name, room)):
                yield [name], count
        for name, _ in self._by_weight():
            if count := self._left(name, room):
                yield [name], count

    def took(self, jobs: Sequence[Claimed]) -> None:
        """Count jobs that were claimed."""
        if not self._plain:
            self.in_hand.update(_queue(job) for job in jobs)

    def let_go(self, ends: Sequence[RunEnd]) -> None:
        """Count jobs that have ended."""
        if not self._plain:
            self.in_hand.subtract(_queue(end.job) for end in ends)

    def _by_weight(self) -> list[tuple[str, Share]]:
        return sorted(self._queues.items(), key=lambda item: -item[1].weight)

    def _left(self, name: str, room: int) -> int:
        limit = self._queues[name].slots
        return room if limit is None else max(0, min(room, limit - self.in_hand[name]))


def _queue(job: Claimed) -> str:
    """The queue as it is named; a shard has a number behind it."""
    return job.queue.partition("#")[0]
