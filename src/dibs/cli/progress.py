"""Progress of a long command: a bar on a terminal, a line every few seconds in a pipe."""

from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from dibs.units import spoken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from dibs.cli.output import Output
    from dibs.types import Changed, Steps

EVERY = 5.0
"""Seconds between two lines in a pipe."""
COUNTING = 10.0
"""Seconds to count the jobs before a change. The change takes many times as long."""


@contextmanager
def counting(output: Output, what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show progress on standard error; with a total, also the time left. Yield a function that advances it.

    With ``--json`` it shows nothing.
    """
    if output.as_json:
        yield lambda _: None
    elif not output.err.is_terminal:
        yield Lines(output, what, total).advance
    else:
        timing = TextColumn("left"), TimeRemainingColumn()
        columns = (SpinnerColumn(), TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, *(timing if total else ()), console=output.err, transient=True) as progress:
            task = progress.add_task(what, total=total)
            yield lambda count: progress.advance(task, count)


def following(advance: Callable[[int], None]) -> Callable[[Changed], None]:
    """Return a listener to the steps of a verb that calls ``advance``."""
    seen = 0

    def tell(so_far: Changed) -> None:
        nonlocal seen
        advance(so_far.matched - seen)
        seen = so_far.matched

    return tell


def counted(output: Output, ask: Callable[[Steps], Changed], most: int | None, after: UUID | None = None) -> int | None:
    """Count the jobs that a verb will change, ``most`` at most; None if counting takes too long."""
    with counting(output, "found") as advance:
        steps: Steps = {"max": most, "after": after, "dry_run": True, "within": COUNTING}
        found = ask({**steps, "on_step": following(advance)})
    return found.matched if not found.more or found.matched == most else None


class Lines:
    """Progress as a line every few seconds, for a log."""

    def __init__(self, output: Output, what: str, total: int | None) -> None:
        self._output = output
        self._what = what
        self._total = total
        self._done = 0
        self._began = self._said = time.monotonic()

    def advance(self, count: int) -> None:
        """Add ``count`` to the jobs that are done."""
        self._done += count
        now = time.monotonic()
        if now - self._said >= EVERY:
            self._said = now
            self._output.note(f"{self._done:,} {self._what}{self._rest(now)}", style="")

    def _rest(self, now: float) -> str:
        if not self._total or not self._done:
            return " so far"
        left = max(0, self._total - self._done) * (now - self._began) / self._done
        return f" of {self._total:,}, about {spoken(timedelta(seconds=round(left)))} left"
