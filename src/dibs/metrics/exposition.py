"""Counters, gauges and histograms, and their text format for Prometheus. Knows no jobs.

The official client library is not used: the format takes a page of code, and so a plain install of a worker can be
scraped. Observations must be cheap, too, since each job makes several of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[str, ...]


class Family(ABC):
    """One metric: its name, its help and the names of its labels. Not thread-safe by itself."""

    type: ClassVar[str]

    def __init__(self, name: str, help: str, *labels: str) -> None:
        self.name = name
        self.help = help
        self.labels = labels

    @abstractmethod
    def samples(self) -> Iterator[str]:
        """Yield a line for each value."""

    def lines(self) -> Iterator[str]:
        """Yield all lines of the metric, without line ends."""
        yield f"# HELP {self.name} {_escape_help(self.help)}"
        yield f"# TYPE {self.name} {self.type}"
        yield from self.samples()

    def _sample(self, suffix: str, values: Labels, value: float, bound: str | None = None) -> str:
        pairs = [f'{name}="{_escape(text)}"' for name, text in zip(self.labels, values, strict=True)]
        if bound is not None:
            pairs.append(f'le="{bound}"')
        return (
            f"{self.name}{suffix}{{{','.join(pairs)}}} {_number(value)}"
            if pairs
            else f"{self.name}{suffix} {_number(value)}"
        )


class Cell:
    """A value."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0


class Gauge(Family):
    """A value that goes up and down."""

    type = "gauge"

    def __init__(self, name: str, help: str, *labels: str) -> None:
        super().__init__(name, help, *labels)
        self._cells: dict[Labels, Cell] = {}

    def of(self, *labels: str) -> Cell:
        """Return the value with these labels, which is 0 at first. Keep it if you need it often."""
        return self._cells.get(labels) or self._cells.setdefault(labels, Cell())

    def add(self, by: float, *labels: str) -> None:
        """Add to a value."""
        self.of(*labels).value += by

    def set(self, value: float, *labels: str) -> None:
        """Replace a value."""
        self.of(*labels).value = value

    def clear(self) -> None:
        """Forget all values."""
        self._cells.clear()

    def samples(self) -> Iterator[str]:
        """Yield a line for each set of labels seen."""
        return (self._sample("", labels, cell.value) for labels, cell in self._cells.items())


class Counter(Gauge):
    """A value that only goes up. Without labels it exists from the start, so that its first increment is visible."""

    type = "counter"

    def __init__(self, name: str, help: str, *labels: str) -> None:
        super().__init__(name, help, *labels)
        if not labels:
            self.of()


class Bins:
    """A histogram: the number of observations between each two bounds, and their sum."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Add an observation."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def replace(self, counts: Sequence[int], sum: float) -> None:
        """Take the counts of another histogram, from the first bound on."""
        self.counts[:] = [*counts, *[0] * (len(self._bounds) + 1 - len(counts))]
        self.sum = sum


class Histogram(Family):
    """The number of observations up to each of some bounds. The bound of infinity is always there."""

    type = "histogram"

    def __init__(self, name: str, help: str, *labels: str, buckets: Sequence[float]) -> None:
        super().__init__(name, help, *labels)
        self._bounds = tuple(sorted(bound for bound in buckets if bound != math.inf))
        self._bins: dict[Labels, Bins] = {}

    def of(self, *labels: str) -> Bins:
        """Return the bins with these labels. Keep them if you need them often."""
        return self._bins.get(labels) or self._bins.setdefault(labels, Bins(self._bounds))

    def observe(self, value: float, *labels: str) -> None:
        """Add an observation."""
        self.of(*labels).observe(value)

    def samples(self) -> Iterator[str]:
        """Yield the buckets, the sum and the count for each set of labels seen."""
        bounds = [_bound(bound) for bound in self._bounds] + ["+Inf"]
        for labels, bins in self._bins.items():
            below = 0
            for bound, count in zip(bounds, bins.counts, strict=True):
                below += count
                yield self._sample("_bucket", labels, below, bound)
            yield self._sample("_sum", labels, bins.sum)
            yield self._sample("_count", labels, below)


def render(families: Iterable[Family]) -> str:
    """Return the text of all metrics."""
    return "".join(f"{line}\n" for family in families for line in family.lines())


def merge(own: str, others: Mapping[str, str], label: str) -> str:
    """Merge texts of metrics into one, in which each metric has one head.

    ``others`` are texts by name: their samples get the label ``label``, whose value is the name.
    """
    heads: dict[str, dict[str, str]] = {}
    samples: dict[str, list[str]] = {}
    for name, text in [("", own), *others.items()]:
        family = ""
        for line in text.split("\n"):  # Not splitlines: a label may hold other characters that end a line in Python.
            if line.startswith("# "):
                _, head, family, *_ = line.split(" ", 3)  # HELP or TYPE, and the name of the metric.
                heads.setdefault(family, {}).setdefault(head, line)
            elif line:
                samples.setdefault(family, []).append(_labelled(line, label, name) if name else line)
    return "".join(
        f"{line}\n" for family, lines in heads.items() for line in (*lines.values(), *samples.get(family, ()))
    )


def _labelled(line: str, label: str, value: str) -> str:
    pair = f'{label}="{_escape(value)}"'
    name, brace, rest = line.partition("{")
    if brace:
        return f"{name}{{{pair},{rest}"
    name, _, rest = line.partition(" ")
    return f"{name}{{{pair}}} {rest}"


def _bound(value: float) -> str:
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _number(value: float) -> str:
    if math.isfinite(value):
        return f"{value:.17g}"
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _escape_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
