"""Operators of jobs: cancelled, edited, moved, brought back, taken back, deleted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.stress.caller import Refused
from tests.stress.jobs import group_of
from tests.stress.operators import Operator, as_json
from tests.stress.world import KINDS, STILL, TINY

if TYPE_CHECKING:
    from uuid import UUID

    from tests.stress.world import World

CANCEL_WHERE = "select done, operation from dibs.cancel_where(%s, 'by filter', %s)"
RETRY = "select done, operation from dibs.retry(%s, %s)"
UNDO = "select * from dibs.undo(%s, %s)"
STATE = "select (dibs.status(%s)).state"


class Surgeon(Operator):
    """Changes jobs one by one and by filter."""

    pause = 0.03

    def __init__(self, world: World, number: int = 0) -> None:
        super().__init__(world, number)
        self.acts = {
            self.cancel: 2, self.cancel_far: 1, self.cancel_strict: 2, self.cancel_key: 1, self.cancel_where: 2,
            self.cancel_and_undo: 3, self.edit: 2, self.edit_slowly: 2, self.edit_still: 2, self.move: 2,
            self.move_to_tiny: 3, self.retry: 5, self.undo: 4, self.purge: 0.1, self.delete: 0.5,
            self.clone: 0.3,
        }  # fmt: skip

    def filter(self) -> dict[str, Any]:
        """Some jobs: of a queue, perhaps of one kind or group, or by their ids."""
        if self.chance.random() < 0.4:
            return {"ids": [str(id) for id in self.some("ready", 20)]}
        chosen: dict[str, Any] = {"queue": self.world.any_queue(self.chance)}
        if self.chance.random() < 0.5:
            chosen |= (
                {"kind": self.chance.choice(KINDS)} if self.chance.random() < 0.5 else {"group": group_of(self.chance)}
            )
        return chosen

    def cancel(self) -> None:
        for id in self.some(self.chance.choice(("ready", "blocked", "lease")), 3):
            self.call("cancel", "select dibs.cancel(%s)", id)

    def cancel_strict(self) -> None:
        """Cancel what has a turn of its group, while the group's policy changes."""
        ids = self.db.run(
            "look",
            "select id from dibs.blocked where group_hold > 'none' or group_key is not null order by random() limit 3",
        )
        for [id] in ids:
            self.call("cancel", "select dibs.cancel(%s)", id)

    def cancel_far(self) -> None:
        """Cancel what waits for a time that this run does not see."""
        ids = self.db.run("look", "select id from dibs.ready where due_at > now() + interval '1 minute' limit 3")
        for [id] in ids:
            self.call("cancel", "select dibs.cancel(%s)", id)

    def cancel_key(self) -> None:
        key = f"{self.chance.choice(('keep', 'swap', 'wait', 'time'))}-{self.chance.randrange(4)}"
        self.call("cancel_key", "select * from dibs.cancel_key(%s, %s)", self.world.any_queue(self.chance), key)

    def cancel_where(self) -> None:
        for done, operation in self.call(
            "cancel_where", CANCEL_WHERE, as_json(self.filter()), self.chance.choice((2, 5, 20))
        ):
            self.remember(done, operation)

    def cancel_and_undo(self) -> None:
        """Jobs may be claimed and released while a cancel waits for one of them."""
        chosen = {"queue": self.chance.choice(("plain", "newest", "fair", "noisy")), "states": ["ready", "scheduled"]}
        for done, operation in self.call("cancel_where", CANCEL_WHERE, as_json(chosen), 50):
            if done and operation:
                self.call("undo", UNDO, operation, 1000)

    def remember(self, done: int, operation: int | None) -> None:
        if done and operation:
            self.world.operations.append(operation)

    def changes(self) -> dict[str, Any]:
        """What to change of a job."""
        options: list[dict[str, Any]] = [
            {"priority": self.chance.choice((1, 5, 9))}, {"delay": self.chance.choice((0, 0.05))},
            {"payload": {"edited": self.chance.randrange(99)}}, {"payload": {"edited": 1}, "delay": 0},
        ]  # fmt: skip
        return self.chance.choice(options)

    def edit(self) -> None:
        for id in self.some(self.chance.choice(("ready", "ready", "blocked", "dead")), 3):
            self.edit_one(id)

    def edit_one(self, id: UUID) -> None:
        """An edit that answers that the job has succeeded has to be right."""
        try:
            self.call("edit", "select dibs.edit(%s, %s)", id, as_json(self.changes()))
        except Refused as refused:
            self.db.reset()
            if refused.code == "DI003":
                [[state]] = self.db.run("look", STATE, (id,))
                if state not in {"succeeded", "unknown"}:
                    self.world.find("edit said that a job has succeeded which has not", f"job {id} is {state}")

    def edit_slowly(self) -> None:
        """An edit in a transaction that stays open for a moment. Two edits would lock tickets in any order."""
        for id in self.some("ready", 1):
            with self.db.transaction():
                self.call("edit", "select dibs.edit(%s, %s)", id, as_json(self.changes()))
                self.world.stop.wait(self.chance.random() * 0.08)

    def edit_still(self) -> None:
        """Edit those that producers are replacing."""
        sql = (
            "select r.id from dibs.ready as r join dibs.queue as q on q.id = r.queue_id where q.name = %s"
            " order by random() limit 4"
        )
        for [id] in self.db.run("look", sql, (STILL,)):
            self.edit_one(id)

    def move(self) -> None:
        target = self.world.any_queue(self.chance)
        if target != STILL:
            self.call(
                "move",
                "select * from dibs.move(%s, %s, %s)",
                as_json(self.filter()),
                target,
                self.chance.choice((1, 5, 20)),
            )

    def move_to_tiny(self) -> None:
        """To a queue that may be dropped at this moment."""
        chosen = as_json({"ids": [str(id) for id in self.some(self.chance.choice(("ready", "dead")), 3)]})
        self.call("move", "select * from dibs.move(%s, %s)", chosen, self.chance.choice(TINY))

    def retry(self) -> None:
        state = self.chance.choice(("failed", "exhausted", "expired", "cancelled"))
        chosen = self.chance.choices(
            (
                {"ids": [str(id) for id in self.some("dead", 30)]},
                {"queue": self.world.any_queue(self.chance), "states": [state]},
                self.filter(),
            ),
            (36, 40, 24),
        )[0]
        for done, operation in self.call("retry", RETRY, as_json(chosen), self.chance.choice((5, 50))):
            self.remember(done, operation)

    def undo(self) -> None:
        if not self.world.operations:
            return
        operation = self.world.operations.pop()
        self.call("undo", UNDO, operation, self.chance.choice((3, 1000)))

    def purge(self) -> None:
        queue = self.world.any_queue(self.chance)
        self.call("purge", "select * from dibs.purge(%s, %s)", queue, self.chance.choice((3, 30)))

    def delete(self) -> None:
        ids = [str(id) for id in self.some("dead", 10)]
        sql = "select ids from dibs.find_jobs(%s, 10)"
        chosen = json.dumps({"queue": self.world.any_queue(self.chance), "states": ["succeeded"]})
        for [found] in self.db.run("find", sql, (chosen,)):
            ids += [str(id) for id in found or []]
        self.call("delete", "select * from dibs.delete(%s)", as_json({"ids": ids}))

    def clone(self) -> None:
        for id in self.some("ready", 1):
            [[made]] = self.call("clone", "select dibs.clone(%s)", id)
            self.db.made([made])
