"""Threads that do at random what operators do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.stress.actor import Actor

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import LiteralString
    from uuid import UUID

    from tests.stress.world import World


class Operator(Actor):
    """Does one of its acts at a time, with the weights given, and says so in the log."""

    pause = 0.05

    def __init__(self, world: World, number: int = 0) -> None:
        super().__init__(world, number)
        self.acts: dict[Callable[[], None], float] = {}

    def step(self) -> None:
        acts = {act: weight for act, weight in self.acts.items() if act.__name__ not in self.world.without}
        if acts:
            self.chance.choices(list(acts), list(acts.values()))[0]()

    def call(self, verb: str, sql: LiteralString, *params: Any) -> list[Any]:
        """Run a verb and log it."""
        self.world.note(self.name, f"{sql} {params}")
        return self.db.run(verb, sql, params)

    def some(self, table: LiteralString, most: int) -> list[UUID]:
        """Ids of some tickets of a table."""
        sql: LiteralString = "select id from dibs." + table + " order by random() limit %s"
        return sorted(row[0] for row in self.db.run("look", sql, (self.chance.randint(1, most),)))


def as_json(value: dict[str, Any] | list[Any]) -> str:
    """What a verb takes as JSON."""
    return json.dumps(value)
