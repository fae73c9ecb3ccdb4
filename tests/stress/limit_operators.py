"""Operators of limits: set, raised, lowered, taken away; by hand and by code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.stress.operators import Operator, as_json
from tests.stress.world import KINDS, LIMITED_KINDS, RESOURCES

if TYPE_CHECKING:
    from typing import LiteralString

    from tests.stress.world import World

SET: dict[str, LiteralString] = {
    "queue": "select dibs.set_limit(queue => %s, concurrency => %s::int, rate => %s::float8, burst => %s::int)",
    "kind": "select dibs.set_limit(kind => %s, concurrency => %s::int, rate => %s::float8, burst => %s::int)",
    "resource": "select dibs.set_limit(resource => %s, concurrency => %s::int, rate => %s::float8, burst => %s::int)",
}
UNSET: dict[str, LiteralString] = {
    "queue": "select dibs.drop_limit(queue => %s)",
    "kind": "select dibs.drop_limit(kind => %s)",
    "resource": "select dibs.drop_limit(resource => %s)",
}


class Limiter(Operator):
    """Sets and unsets limits of queues, kinds and resources."""

    pause = 0.25

    def __init__(self, world: World, number: int = 0) -> None:
        super().__init__(world, number)
        self.acts = {self.set_limit: 5, self.drop_limit: 3, self.flicker_limit: 1.5}

    def target(self) -> tuple[str, str]:
        """What to limit."""
        scope = self.chance.choice(("queue", "kind", "kind", "resource"))
        if scope == "queue":
            return scope, self.world.any_queue(self.chance)
        return scope, self.chance.choice(LIMITED_KINDS if scope == "kind" else RESOURCES)

    def numbers(self) -> tuple[int | None, float | None, int | None]:
        """A concurrency, a rate or both, and perhaps a burst."""
        concurrency = self.chance.choice((None, 0, 1, 2, 3, 5, 10))
        rate = self.chance.choice((None, None, 100.0, 500.0)) if concurrency is not None else 200.0
        return concurrency, rate, self.chance.choice((None, 5)) if rate else None

    def set_limit(self) -> None:
        scope, name = self.target()
        self.call("set_limit", SET[scope], name, *self.numbers())

    def drop_limit(self) -> None:
        scope, name = self.target()
        self.call("drop_limit", UNSET[scope], name)

    def flicker_limit(self) -> None:
        """Set a limit and take it away at once: claims in flight saw it."""
        scope, name = self.target()
        self.call("set_limit", SET[scope], name, 1, None, None)
        self.world.stop.wait(self.chance.random() * 0.03)
        self.call("drop_limit", UNSET[scope], name)


class Declarer(Operator):
    """Declares limits of kinds as workers do when they start; two of them compete."""

    pause = 0.6

    def __init__(self, world: World, number: int = 0) -> None:
        super().__init__(world, number)
        self.acts = {self.declare: 1}

    def declare(self) -> None:
        limits = [
            {
                "kind": kind,
                "concurrency": self.chance.choice((None, None, 2, 4)),
                "rate": self.chance.choice((None, None, 300)),
            }
            for kind in KINDS[2:]
        ]
        self.call("declare_limits", "select * from dibs.declare_limits(%s)", as_json(limits))
