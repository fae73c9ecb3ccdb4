"""What all threads of a run share: names, what they remember, what went wrong, and when to stop."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random
    from uuid import UUID

KINDS = ("mail", "render", "scan", "tidy")
LIMITED_KINDS = ("render", "scan")
RESOURCES = ("gpu", "seat")
MOST_UNITS = 2
"""What a job needs of a resource, at most."""

GROUPED = ("fair", "strict", "noisy", "mixed")
PLAIN = ("plain", "newest", "deep", "unkept")
STILL = "still"
"""Nobody claims from it before the drain, so of the jobs with one key only one may wait."""
LOUD = "loud"
"""Most of its jobs are of one group, and claims of it are small: so a noisy group keeps jobs that are served last."""
TINY = ("tiny-1", "tiny-2", "tiny-3")
"""They are dropped and made again all the time."""

SETTINGS: dict[str, dict[str, Any]] = {
    "fair": {},
    "strict": {},
    "noisy": {"noisy_share": 0.3},
    "mixed": {"priority": 3},
    "plain": {},
    "newest": {"newest_first": True},
    "deep": {"max_depth": 150, "when_full": "sideline"},
    "unkept": {"history": "none"},
    STILL: {},
    LOUD: {"noisy_share": 0.1},
}
COMMON: dict[str, Any] = {
    "lease": 1.5, "lease_cap": 3, "max_attempts": 1000, "max_losses": 1000, "shard_lease": 1,
    "backoff": {"kind": "constant", "delays": [0.02]},
}  # fmt: skip

MOST_DETAIL = 6000
MOST_FINDINGS = 40
"""A run with so many different findings ends: more of them say nothing new."""


@dataclass
class Finding:
    """Something that must not happen."""

    name: str
    detail: str
    at: float
    times: int = 1
    recent: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        recent = "".join(f"\n      {line}" for line in self.recent)
        before = f"\n    operators before it:{recent}" if recent else ""
        detail = self.detail.strip().replace("\n", "\n    ")
        return f"{self.name} ({self.times} times, {self.at:.1f} s after the start)\n    {detail}{before}"


class World:
    """The memory of one run. Its threads change it under the lock only."""

    def __init__(self, dsn: str, seed: int, *, backlog: int = 500, without: frozenset[str] = frozenset()) -> None:
        self.dsn = dsn
        self.seed = seed
        self.backlog = backlog
        self.without = without
        """Acts of operators that are left out, to look for one thing at a time."""
        self.stop = threading.Event()
        self.crowded = threading.Event()
        self.began = time.monotonic()
        self.lock = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()
        self.findings: dict[str, Finding] = {}
        self.made: set[UUID] = set()
        self.done: Counter[UUID] = Counter()
        """How often a committed complete answered ok."""
        self.unsure: set[UUID] = set()
        """The connection broke while they were completed."""
        self.killed: set[int] = set()
        self.pids: dict[str, int] = {}
        self.warnings: Counter[str] = Counter()
        self.log: deque[str] = deque(maxlen=300)
        self.fresh = "fresh-0"
        self.sharded: list[str] = []
        self.operations: deque[int] = deque(maxlen=30)
        """Operations that may be undone."""

    def seconds(self) -> float:
        """Since the run began."""
        return time.monotonic() - self.began

    def find(self, name: str, detail: str) -> None:
        """Note what must not happen; the same again is only counted."""
        with self.lock:
            # Seen while it ran, after the load or after the drain: it is the same.
            known = self.findings.get(name.partition(" (")[0])
            if known is not None:
                known.times += 1
                return
            self.findings[name.partition(" (")[0]] = Finding(
                name, detail[:MOST_DETAIL], self.seconds(), recent=[] if self.stop.is_set() else list(self.log)[-8:]
            )
            if len(self.findings) >= MOST_FINDINGS:
                self.stop.set()

    def note(self, who: str, what: str) -> None:
        """Log what an operator did, for those who read a finding."""
        with self.lock:
            self.log.append(f"{self.seconds():7.3f} {who}: {what[:150]}")

    def remember(self, made: list[UUID], done: list[UUID]) -> None:
        """What a committed transaction enqueued and completed."""
        with self.lock:
            self.made.update(made)
            self.done.update(done)
            twice = [id for id in done if self.done[id] > 1]
        for id in twice:
            self.find("a job was completed twice", f"job {id}")

    def names(self) -> list[str]:
        """Queues that workers claim from."""
        return [*PLAIN, *GROUPED, *TINY, self.fresh]

    def any_queue(self, chance: Random) -> str:
        """A queue to do something to."""
        sharded = [*self.sharded[-2:], *self.sharded[-1:] * 3]
        return chance.choice([*self.names(), *self.names(), STILL, *sharded])
