"""Rounds that can be compared, although the machine is faster at one time than at another."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.stage import Stage

JOBS = 3_000


@contextmanager
def yardstick(stage: Stage) -> Iterator[Yardstick]:
    """Measure beside a stage, in a database where nothing holds the horizon back."""
    with stage.beside() as beside:
        yield Yardstick(beside)


@dataclass
class Yardstick:
    """Drains a few jobs, again and again."""

    stage: Stage

    def speed(self) -> float:
        """How many jobs per second the machine drains at the moment."""
        with self.stage.connect() as conn:
            conn.execute("vacuum dibs.ready, dibs.lease")
            self.stage.fill(conn, JOBS)
            done, seconds = self.stage.drain(conn)
            return done / seconds


@dataclass
class Rounds:
    """The jobs per second of each round, and what the machine could do right after it."""

    yardstick: Yardstick
    rates: list[int] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)

    def add(self, done: int, seconds: float) -> None:
        """Note a round."""
        self.rates.append(round(done / seconds))
        self.speeds.append(self.yardstick.speed())

    def as_measured(self) -> dict[str, Any]:
        """What a scenario shows of them."""
        return {
            "rounds": self.rates,
            "first": self.rates[0],
            "last": self.rates[-1],
            "ratio": self.ratio,
            "clock_ratio": self.clock_ratio,
        }

    @property
    def ratio(self) -> float:
        """How fast the last rounds are as a part of how fast the first are, each beside what the machine could do."""
        return _last_to_first([rate / speed for rate, speed in zip(self.rates, self.speeds, strict=True)])

    @property
    def clock_ratio(self) -> float:
        """The same by the clock alone, as if the machine had been equally fast all the time."""
        return _last_to_first(self.rates)


def _last_to_first(rounds: list[int] | list[float]) -> float:
    """The last quarter as a part of the first, by medians."""
    some = max(len(rounds) // 4, 1)
    return median(rounds[-some:]) / median(rounds[:some])
