"""The facts of a demo: counts, recent events, and the errors in how its jobs ended."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from dibs.cli.commands.demo.shop import BY_NAME
from dibs.states import Outcome, State

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from dibs.events import RunEnded

RUNS = ("succeeded", "retried", "failed", "exhausted", "snoozed", "lost")
"""The events that end a run."""
SPOKEN = {
    "snoozed": "no data yet; snoozed",
    "retried": "tries again",
    "exhausted": "exhausted",
    "failed": "failed for good",
}


def _sort(event: RunEnded) -> str:
    """Return the sort of a run's end that was no success."""
    if event.state.has_ended:
        return str(event.state)
    return "retried" if event.outcome is Outcome.FAILED else str(event.outcome)


class Moment(NamedTuple):
    """An event: when it happened, of which sort it is, and how often it has happened so far."""

    at: float
    sort: str
    text: str
    times: int


@dataclass(slots=True)
class Tally:
    """Counts, and the last event of each text, oldest first; ``listen`` is called with each event."""

    total: int
    phase: str = ""
    states: Counter[State] = field(default_factory=Counter)
    happened: Counter[str] = field(default_factory=Counter)
    completions: Counter[UUID] = field(default_factory=Counter)
    events: dict[str, Moment] = field(default_factory=dict)
    listen: Callable[[Moment], None] = lambda _: None
    began: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began

    @property
    def ended(self) -> int:
        """The number of jobs that have ended, well or badly."""
        return sum(count for state, count in self.states.items() if state.has_ended)

    def note(self, sort: str, text: str, *, count: int = 1) -> None:
        """Record that something happened, ``count`` times."""
        self.happened[sort] += count
        before = self.events.pop(text, None)
        event = Moment(self.elapsed, sort, text, before.times + 1 if before else 1)
        if sort == "phase":
            self.phase = text
        else:
            self.events[text] = event
        self.listen(event)

    def run_ended(self, event: RunEnded) -> None:
        """Record the end of a run."""
        job, error = event.job, (event.error or "").partition(": ")[2]
        if event.outcome is Outcome.SUCCEEDED:
            self.completions[job.id] += 1
            self.note("succeeded", "a job succeeded")
        else:
            sort = _sort(event)
            parts = (error if sort != "snoozed" else "", SPOKEN.get(sort, sort))
            self.note(sort, f"{job.kind}: {'; '.join(filter(None, parts))}")

    def errors(self, ended: dict[UUID, tuple[str, State]]) -> list[str]:
        """Compare the kind and state of each job with its expected end. Return a sentence for each difference."""
        wrong = [] if len(ended) == self.total else [f"{self.total} jobs were asked for and {len(ended)} enqueued"]
        for id, (kind, state) in ended.items():
            expected, times = BY_NAME[kind].expected_end, self.completions[id]
            if state is not expected:
                wrong.append(f"{kind} {id} is {state}, not {expected}")
            if times != (state is State.SUCCEEDED):
                wrong.append(f"{kind} {id} is {state} and was completed {times} times")
        return wrong

    def summary(self, wrong: list[str]) -> dict[str, Any]:
        """Return the facts as one JSON document."""
        seconds, runs = self.elapsed, sum(self.happened[sort] for sort in RUNS)
        return {
            "ok": not wrong,
            "jobs": self.total,
            "seconds": round(seconds, 2),
            "runs": runs,
            "runs_per_second": round(runs / seconds, 1),
            "states": {str(state): count for state, count in self.states.items()},
            "happened": {name: n for name, n in self.happened.items() if name not in {"phase", "crash"}},
            "wrong": wrong,
        }
