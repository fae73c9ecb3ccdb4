"""Rounds of the same work, one after the other: is the last as fast as the first?"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.stage import Stage


@dataclass
class Rounds:
    """The jobs per second of each round, and the blocks that the server read for each job after its enqueue.

    Machines are noisy, and a fifth slower at one time than at another. Blocks are exact: a scan over dead rows, or a
    plan that flips, shows in them.
    """

    stage: Stage
    rates: list[int] = field(default_factory=list)
    blocks: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stage.blocks_since()

    def add(self, done: int, seconds: float) -> None:
        """Note a round."""
        self.rates.append(round(done / seconds))
        self.blocks.append(round(self.stage.blocks_since() / done, 1))

    @property
    def ratio(self) -> float:
        """The speed of the last rounds relative to the first."""
        return _last_to_first(self.rates)

    @property
    def blocks_ratio(self) -> float:
        """The blocks read in the first rounds relative to the last."""
        return 1 / _last_to_first(self.blocks)

    def measured(self, name: str = "") -> dict[str, Any]:
        """Return the figures of a scenario."""
        return {
            f"{name}rounds": self.rates,
            f"{name}first": self.rates[0],
            f"{name}last": self.rates[-1],
            f"{name}ratio": self.ratio,
            f"{name}blocks": self.blocks,
            f"{name}blocks_ratio": self.blocks_ratio,
        }


def _last_to_first(rounds: list[int] | list[float]) -> float:
    """The last quarter as a part of the first, by medians."""
    some = max(len(rounds) // 4, 1)
    return median(rounds[-some:]) / median(rounds[:some])
