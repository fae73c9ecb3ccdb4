"""What a worker can be told."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dibs.errors import InvalidArgument
from dibs.worker.shares import Share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Settings:
    """How a worker works.

    ``queues`` are their names, or a mapping of them to their :class:`Share`. ``concurrency`` is how many handlers run
    at once, ``threads`` how many of them may be plain functions, ``pool`` how many of them may have a process of
    their own, and ``connections`` how many may be in ``context().transaction()``; ``grace`` is how many seconds they
    have to finish after a stop. With ``drain`` the worker ends when nothing is left to do; ``upkeep`` runs the
    maintenance beside; ``poll`` is how often to look for work that no ring announced.
    """

    queues: Mapping[str, Share] | Sequence[str]
    concurrency: int = 100
    threads: int = 20
    pool: int = field(default_factory=lambda: os.cpu_count() or 1)
    connections: int = 10
    grace: float = 30.0
    drain: bool = False
    upkeep: bool = True
    poll: float = 1.0
    name: str = "worker"

    def __post_init__(self) -> None:
        least = (("concurrency", 1), ("threads", 1), ("pool", 1), ("connections", 1), ("grace", 0), ("poll", 0.01))
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
