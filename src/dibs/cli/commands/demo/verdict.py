"""Whether the demo ended as it must, and the summary of what happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dibs.cli.commands.demo.plan import expected_end
from dibs.states import State

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from dibs.cli.commands.demo.tally import Tally
    from dibs.cli.output import Output


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the demo did; ``wrong`` is empty when all is as it must be."""

    jobs: int
    seconds: float
    runs: int
    states: dict[str, int]
    happened: dict[str, int]
    wrong: tuple[str, ...]

    @property
    def rate(self) -> float:
        """Runs per second."""
        return self.runs / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, Any]:
        """The summary for programs."""
        counts = {name: n for name, n in self.happened.items() if name not in {"phase", "crash"}}
        return {
            "ok": not self.wrong,
            "jobs": self.jobs,
            "seconds": round(self.seconds, 2),
            "runs": self.runs,
            "runs_per_second": round(self.rate, 1),
            "states": self.states,
            "happened": counts,
            "wrong": self.wrong,
        }


def judge(tally: Tally, kinds: dict[UUID, str], states: Sequence[State]) -> Verdict:
    """Compare what the database says of every job with what must be true of it."""
    ended = {id: (kind, state) for (id, kind), state in zip(kinds.items(), states, strict=True)}
    wrong = [
        f"{kind} {id} is {state}, not {expected_end(kind)}"
        for id, (kind, state) in ended.items()
        if state is not expected_end(kind)
    ]
    for id, (kind, state) in ended.items():
        times = tally.completions[id]
        if times != (state is State.SUCCEEDED):
            wrong.append(f"{kind} {id} is {state} and was completed {times} times")
    if len(ended) != tally.total:
        wrong.append(f"{tally.total} jobs were asked for and {len(ended)} enqueued")
    return Verdict(tally.total, tally.elapsed, tally.runs, dict(tally.states), dict(tally.happened), tuple(wrong))


def summarize(output: Output, verdict: Verdict, next_steps: Sequence[tuple[str, str]]) -> None:
    """Say what happened, whether it is right, and what to do next."""
    n = verdict.happened
    output.say("")
    output.facts(
        [
            ("jobs", f"{verdict.jobs} in {verdict.seconds:.1f} s: "
             + ", ".join(f"{count} {state}" for state, count in sorted(verdict.states.items(), reverse=True))),
            ("runs", f"{verdict.runs}, {verdict.rate:.0f} per second (the jobs themselves only sleep)"),
            ("retried", f"{n.get('retried', 0)} times after an error, {n.get('lost', 0)} after a worker vanished; "
             f"{n.get('snoozed', 0)} snoozed"),
            ("dead", f"{n.get('failed', 0)} failed, {n.get('exhausted', 0)} exhausted, {n.get('expired', 0)} expired, "
             f"{n.get('cancelled', 0)} cancelled"),
            ("brought back", f"{n.get('brought_back', 0)}" + ("" if verdict.wrong else ", and all of them succeeded")),
        ]
    )  # fmt: skip
    for line in verdict.wrong[:10]:
        output.say(f"wrong: {line}", "red")
    if not verdict.wrong:
        output.say("every job ended, and ended once", "bold green")
    output.say("")
    output.say("what next", "bold")
    output.facts((f"  {command}", what) for command, what in next_steps)
