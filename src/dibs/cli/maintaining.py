"""What ``dibs maintain`` writes: a line for whatever was done, went wrong, or works again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dibs.maintenance import Done, Trouble

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.cli.output import Output
    from dibs.errors import DibsError


class Log:
    """One line for each fact; rounds that found nothing to do are not news."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._failing: set[str] = set()

    def __call__(self, fact: Done | Trouble) -> None:
        """Write what happened, if it is news."""
        if isinstance(fact, Trouble):
            self._failing.add(fact.chore)
            self._line("trouble", chore=fact.chore, error=_first(fact.error), failures=fact.failures,
                       again_in=round(fact.again, 1))  # fmt: skip
            return
        if fact.chore in self._failing:
            self._failing.discard(fact.chore)
            self._line("recovered", chore=fact.chore)
        if fact.anything:
            self._line("done", chore=fact.chore, **{k: v for k, v in fact.counts.items() if v})

    def started(self) -> None:
        """The loops are about to run."""
        self._line("started")

    def stopped(self) -> None:
        """All loops have ended."""
        self._line("stopped")

    def away(self, error: DibsError) -> None:
        """The database is not there yet."""
        self._line("waiting", error=_first(error))

    def table(self, done: Sequence[Done]) -> None:
        """What one round of everything did."""
        if self._output.as_json:
            self._output.json({d.chore: d.counts for d in done})
            return
        told = ((d.chore, ", ".join(f"{n} {what}" for what, n in d.counts.items() if n)) for d in done)
        self._output.facts((chore, text or "nothing to do") for chore, text in told)

    def _line(self, event: str, **facts: Any) -> None:
        now = datetime.now(UTC)
        if self._output.as_json:
            self._output.json({"at": now, "event": event, **facts})
            return
        told = " ".join(f"{name}={value}" for name, value in facts.items())
        self._output.say(f"{now.astimezone():%Y-%m-%d %H:%M:%S} {event:9} {told}".rstrip(), _STYLES.get(event, ""))


_STYLES = {"trouble": "red", "waiting": "yellow", "recovered": "green"}


def _first(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
