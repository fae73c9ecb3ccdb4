"""What has happened so far: the demo's facts, to be shown."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dibs.states import State

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

RECENT = 7
ENDED = frozenset(state.value for state in State if state.has_ended)


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened to a job, or to all of them."""

    at: float
    what: str
    text: str
    id: UUID | None = None
    times: int = 1


@dataclass(slots=True)
class Tally:
    """Counts and recent events; ``listen`` is told each event."""

    total: int = 0
    phase: str = ""
    states: Counter[str] = field(default_factory=Counter)
    happened: Counter[str] = field(default_factory=Counter)
    completions: Counter[UUID] = field(default_factory=Counter)
    recent: deque[Moment] = field(default_factory=lambda: deque(maxlen=RECENT))
    last_success: Moment | None = None
    listen: Callable[[Moment], None] = lambda _: None
    _began: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    @property
    def ended(self) -> int:
        """How many jobs are over, well or badly."""
        return sum(count for state, count in self.states.items() if state in ENDED)

    @property
    def runs(self) -> int:
        """How many runs have ended, however they did."""
        ends = ("succeeded", "retried", "failed", "exhausted", "snoozed", "lost")
        return sum(self.happened[end] for end in ends)

    def begin(self, total: int) -> None:
        """Start the clock, with that many jobs to come."""
        self.total = total
        self._began = time.monotonic()

    def enter(self, phase: str) -> None:
        """Go on to the next part of the story."""
        self.phase = phase
        self.note("phase", phase)

    def note(self, what: str, text: str, id: UUID | None = None, *, count: int = 1) -> None:
        """Record that something happened, ``count`` times."""
        self.happened[what] += count
        event = Moment(self.elapsed, what, text, id)
        if what == "succeeded":
            self.last_success = event
        elif what != "phase":
            self._remember(event)
        self.listen(event)

    def _remember(self, event: Moment) -> None:
        same = next((e for e in self.recent if e.text == event.text), None)
        if same:
            self.recent.remove(same)
            event = replace(event, times=same.times + 1)
        self.recent.append(event)
