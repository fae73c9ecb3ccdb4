"""The settings of a worker: the arguments of ``App.run_worker`` and the options of ``dibs worker``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypedDict

import msgspec

from dibs.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Share(msgspec.Struct, frozen=True):
    """A queue's share of a worker: at most ``slots`` jobs in hand, and ``weight`` parts of the room."""

    slots: int | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.slots is not None and self.slots < 1:
            raise InvalidArgument(f"a queue's slots is at least 1, not {self.slots}")
        if not 0 < self.weight <= 1000:
            raise InvalidArgument(f"a queue's weight is above 0 and at most 1000, not {self.weight}")


class WorkerSettings(msgspec.Struct, frozen=True):
    """The settings of a worker.

    ``queues`` are their names, or a mapping of names to their :class:`Share`. ``slots`` is how many handlers run
    at once; of these, at most ``threads`` are plain functions, ``pool`` run in separate processes, and
    ``connections`` are inside ``context().transaction()``. ``grace`` is how many seconds they have to finish after a
    stop. With ``drain`` the worker ends when nothing is left to do. ``upkeep`` runs the maintenance beside it, and
    ``poll`` is the number of seconds between looks for work that no ring announced. ``name`` is shown by
    ``dibs workers``.
    """

    queues: Mapping[str, Share] | Sequence[str]
    slots: int = 100
    threads: int = 20
    pool: int = msgspec.field(default_factory=lambda: os.cpu_count() or 1)
    connections: int = 10
    grace: float = 30.0
    drain: bool = False
    upkeep: bool = True
    poll: float = 1.0
    name: str = "worker"

    def __post_init__(self) -> None:
        if isinstance(self.queues, str):
            raise InvalidArgument(f"queues are a list of names, not {self.queues!r}", hint=f"write [{self.queues!r}]")
        least = (("slots", 1), ("threads", 1), ("pool", 1), ("connections", 1), ("grace", 0), ("poll", 0.01))
        for setting, lowest in least:
            if getattr(self, setting) < lowest:
                raise InvalidArgument(f"a worker's {setting} is at least {lowest}, not {getattr(self, setting)}")
        if not self.queues:
            raise InvalidArgument("a worker needs at least one queue", hint="declare a task, or name a queue")

    @property
    def shares(self) -> dict[str, Share]:
        """Each queue's share."""
        if isinstance(self.queues, (list, tuple)):
            return dict.fromkeys(self.queues, Share())
        return dict(self.queues)  # type: ignore[arg-type]


class WorkerOptions(TypedDict, total=False):
    """The fields of :class:`WorkerSettings`, as keyword arguments."""

    queues: Mapping[str, Share] | Sequence[str]
    slots: int
    threads: int
    pool: int
    connections: int
    grace: float
    drain: bool
    upkeep: bool
    poll: float
    name: str


__all__ = ["Share", "WorkerOptions", "WorkerSettings"]
