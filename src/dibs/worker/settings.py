"""What a worker can be told."""

from __future__ import annotations

from dataclasses import dataclass

from dibs.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Settings:
    """How a worker works.

    ``concurrency`` is how many handlers run at once; ``grace`` how many seconds they have to finish after a stop; with
    ``drain`` the worker ends when nothing is left to do; ``upkeep`` runs the maintenance loops beside.
    """

    queues: tuple[str, ...]
    concurrency: int = 100
    threads: int = 20
    grace: float = 30.0
    drain: bool = False
    upkeep: bool = True
    poll: float = 1.0
    name: str = "worker"

    def __post_init__(self) -> None:
        for setting, least in (("concurrency", 1), ("threads", 1), ("grace", 0), ("poll", 0.01)):
            if getattr(self, setting) < least:
                raise InvalidArgument(f"a worker's {setting} is at least {least}, not {getattr(self, setting)}")
        if not self.queues:
            raise InvalidArgument("a worker needs at least one queue", hint="declare a task, or name a queue")
