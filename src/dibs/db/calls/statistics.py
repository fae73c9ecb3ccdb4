"""Statistics and counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.db.calls.call import RENAMED, SPAN, Call, columns, in_seconds, nothing
from dibs.stats import Counters, Statistics, Totals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs.policy import Seconds


def statistics(
    queue: str | None, kind: str | None, by: str | Sequence[str], since: Seconds, every: Seconds | None
) -> Call[list[Statistics]]:
    """Sum up recent runs by queue, kind, both or neither."""
    words = [by] if isinstance(by, str) else list(by)
    return Call(
        f"select {columns(Statistics, RENAMED)} from dibs.statistics(%s, %s, {SPAN}, {SPAN}, %s)",
        (queue, kind, in_seconds(since), in_seconds(every), words),
        lambda rows: [Statistics(*row) for row in rows],
        slow=True,
    )


def totals(queue: str | None, kind: str | None) -> Call[list[Totals]]:
    """Return totals for all time, by queue and kind."""
    return Call(
        f"select {columns(Totals)} from dibs.totals"
        " where (%s::text is null or queue = %s) and (%s::text is null or kind = %s) order by queue, kind",
        (queue, queue, kind, kind),
        lambda rows: [Totals(*row) for row in rows],
        slow=True,
    )


def counters() -> Call[list[Counters]]:
    """Return counters since the install: numbers that only rise."""
    return Call(
        f"select {columns(Counters, RENAMED)} from dibs.counters()",
        (),
        lambda rows: [Counters(*row) for row in rows],
        slow=True,
    )


def set_stat_retention(minutes: Seconds | None, hours: Seconds | None) -> Call[None]:
    """Set how long statistics are kept."""
    return Call(f"select dibs.set_stat_retention({SPAN}, {SPAN})", (in_seconds(minutes), in_seconds(hours)), nothing)


def roll_up() -> Call[tuple[int | None, bool]]:
    """Count ended runs in the statistics. Return how many (None: another process does it), and if more remain."""
    return Call("select counted, more from dibs.roll_up()", (), lambda rows: (rows[0][0], rows[0][1]), slow=True)
