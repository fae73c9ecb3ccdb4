"""Charts as SVG, drawn on the server: no script, no style, only classes that the stylesheet colours."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from markupsafe import Markup

from dibs.web.words import number, span

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dibs.stats import Statistics

ORIGIN = datetime(2000, 1, 1, tzinfo=UTC)
"""The time from which `dibs.statistics` counts its periods."""
SLOT, HEIGHT = 10.0, 100.0
"""The width of a slot and the height of a chart; the page stretches both."""
HIGHEST_LINE = 96.0
"""The height of the highest point of a line: at the edge a part of its width would be cut off."""


@dataclass(frozen=True, slots=True)
class Range:
    """The span of time of a chart and the length of its periods."""

    name: str
    since: timedelta
    every: timedelta

    @property
    def slots(self) -> int:
        """The number of periods."""
        return self.since // self.every

    def starts(self, now: datetime) -> list[datetime]:
        """The beginning of each period, the current one last."""
        last = ORIGIN + (now - ORIGIN) // self.every * self.every
        return [last - n * self.every for n in reversed(range(self.slots))]


RANGES = {
    r.name: r
    for r in (
        Range("hour", timedelta(hours=1), timedelta(minutes=1)),
        Range("day", timedelta(days=1), timedelta(hours=1)),
        Range("week", timedelta(days=7), timedelta(hours=3)),
    )
}


@dataclass(frozen=True, slots=True)
class Period:
    """The numbers of a chart for the period that began ``at``."""

    at: datetime
    succeeded: int = 0
    failed: int = 0
    lost: int = 0
    run_p50: timedelta | None = None
    run_p95: timedelta | None = None
    wait_p50: timedelta | None = None
    wait_p95: timedelta | None = None


def filled(found: Iterable[Statistics], range: Range, now: datetime) -> list[Period]:
    """Return a period for each slot, empty where nothing happened."""
    known = {
        s.at: Period(s.at, s.succeeded, s.failed, s.lost, s.run_p50, s.run_p95, s.wait_p50, s.wait_p95)
        for s in found
        if s.at is not None
    }
    return [known.get(at) or Period(at) for at in range.starts(now)]


def throughput(periods: Sequence[Period]) -> Markup:
    """Draw the runs that succeeded, and on top those that failed."""
    bars = [(p.at, float(p.succeeded), float(p.failed + p.lost)) for p in periods]
    top = max((good + bad for _, good, bad in bars), default=0) or 1
    drawn = Markup().join(_stack(n, bar, top) for n, bar in enumerate(bars))
    return _chart("throughput", drawn, len(bars), number(top))


def _stack(place: int, bar: tuple[datetime, float, float], top: float) -> Markup:
    """Draw a bar of successes with one of failures on it, and their numbers as a title; ``top`` fills the height."""
    at, good, bad = bar
    title = f"{at:%a %H:%M} UTC: {number(good)} succeeded, {number(bad)} failed"
    good_height, bad_height = HEIGHT * good / top, HEIGHT * bad / top
    good_y = HEIGHT - good_height
    x = place * SLOT + 1
    return Markup(
        '<g><title>{}</title><rect class="hit" x="{:.1f}" y="0" width="{:.1f}" height="{:.1f}"/>'
        '<rect class="good" x="{:.1f}" y="{:.2f}" width="{:.1f}" height="{:.2f}"/>'
        '<rect class="bad" x="{:.1f}" y="{:.2f}" width="{:.1f}" height="{:.2f}"/></g>'
    ).format(
        title,
        *(place * SLOT, SLOT, HEIGHT),
        *(x, good_y, SLOT - 2, good_height),
        *(x, good_y - bad_height, SLOT - 2, bad_height),
    )


def durations(periods: Sequence[Period], what: str) -> Markup:
    """Draw the median and the 95th percentile of ``run`` or ``wait``, as lines."""
    medians = [getattr(p, f"{what}_p50") for p in periods]
    p95s = [getattr(p, f"{what}_p95") for p in periods]
    top = max((p95.total_seconds() for p95 in p95s if p95 is not None), default=0) or 1
    shapes = [_line("p95", p95s, top), _line("p50", medians, top)]
    hits = [
        Markup("<g><title>{:%a %H:%M} UTC: median {}, 95 % within {}</title>{}</g>").format(
            p.at, span(median), span(p95), _hit(n)
        )
        for n, (p, median, p95) in enumerate(zip(periods, medians, p95s, strict=True))
        if p95 is not None
    ]
    return _chart(what, Markup().join([*shapes, *hits]), len(periods), span(top))


def _hit(place: int) -> Markup:
    """Draw the invisible area of a slot, which shows the title of its group to the mouse."""
    return Markup('<rect class="hit" x="{:.1f}" y="0" width="{:.1f}" height="{:.1f}"/>').format(
        place * SLOT, SLOT, HEIGHT
    )


def _line(name: str, values: Sequence[timedelta | None], top: float) -> Markup:
    """Draw a stroke for each known value, joined with those of its neighbours."""
    strokes: list[str] = []
    for n, value in enumerate(values):
        if value is None:
            continue
        y = HEIGHT - HIGHEST_LINE * value.total_seconds() / top
        is_joined = n > 0 and values[n - 1] is not None
        strokes.append(f"{'L' if is_joined else 'M'}{n * SLOT + 3:.1f} {y:.2f}L{n * SLOT + 7:.1f} {y:.2f}")
    return Markup('<path class="line {}" d="{}"/>').format(name, "".join(strokes))


def sparkline(values: Sequence[tuple[int, int]]) -> Markup:
    """Draw a tiny chart of runs that succeeded and failed."""
    top = max((good + bad for good, bad in values), default=0) or 1
    drawn = Markup()
    for n, (good, bad) in enumerate(values):
        good_height, bad_height = HEIGHT * good / top, HEIGHT * bad / top
        good_y = HEIGHT - good_height
        for name, y, height in (("good", good_y, good_height), ("bad", good_y - bad_height, bad_height)):
            if height:
                drawn += Markup('<rect class="{}" x="{:.1f}" y="{:.2f}" width="{:.1f}" height="{:.2f}"/>').format(
                    name, n * SLOT + 1, y, SLOT - 2, height
                )
    return _svg("spark", drawn, len(values))


def _chart(name: str, drawn: Markup, slots: int, top: str) -> Markup:
    return Markup('<div class="chart"><span class="top">{}</span>{}</div>').format(top, _svg(name, drawn, slots))


def _svg(name: str, drawn: Markup, slots: int) -> Markup:
    return Markup(
        '<svg class="{}" viewBox="0 0 {:.0f} {:.0f}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(name, max(slots, 1) * SLOT, HEIGHT, name, drawn)
