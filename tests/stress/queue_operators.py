"""Operators of queues and groups: policies, pauses, shards, queues that come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.stress.jobs import group_of
from tests.stress.operators import Operator, as_json
from tests.stress.world import COMMON, GROUPED, LOUD, TINY

if TYPE_CHECKING:
    from tests.stress.world import World

MOST_SHARDED = 25
SET_QUEUE = "select dibs.set_queue(%s, %s)"


class Grouper(Operator):
    """Sets and unsets policies of groups and of whole queues."""

    pause = 0.3

    def __init__(self, world: World, number: int = 0) -> None:
        super().__init__(world, number)
        self.acts = {self.set_group: 3, self.make_strict: 2, self.drop_group: 2}

    def target(self) -> tuple[str, str | None]:
        """A queue, and a group or none for all."""
        queue = self.chance.choice((*GROUPED, "strict", self.world.fresh))
        return queue, None if self.chance.random() < 0.4 else group_of(self.chance)

    def set_group(self) -> None:
        policy: dict[str, Any] = {}
        if self.chance.random() < 0.6:
            policy["concurrency"] = self.chance.choice((None, 1, 2, 4))
        if self.chance.random() < 0.4:
            policy["weight"] = self.chance.choice((1, 3))
        if self.chance.random() < 0.3:
            policy["rate"] = self.chance.choice((None, 100))
        if self.chance.random() < 0.05:
            policy["max_depth"] = self.chance.choice((None, 30))
        self.call("set_group", "select dibs.set_group(%s, %s, %s)", *self.target(), as_json(policy or {"weight": 2}))

    def make_strict(self) -> None:
        self.call("set_group", "select dibs.set_group(%s, %s, %s)", *self.target(), as_json({"concurrency": 1}))

    def drop_group(self) -> None:
        self.call("drop_group", "select dibs.drop_group(%s, %s)", *self.target())


class Queuer(Operator):
    """Changes settings, pauses and resumes, and makes and drops queues."""

    pause = 0.06

    def __init__(self, world: World, number: int = 0) -> None:
        super().__init__(world, number)
        self.number = 0
        self.acts = {
            self.set_queue: 4, self.flip_noise: 2, self.pause_and_resume: 2, self.renew: 0.5, self.new_shards: 0.3,
            self.touch_shards: 3, self.drop: 2, self.wipe: 0.7,
        }  # fmt: skip

    def set_queue(self) -> None:
        choices: dict[str, tuple[Any, ...]] = {
            "newest_first": (True, False), "priority": (3, 5, 7), "lease": (0.8, 1.5), "history": ("all", "failures"),
            "max_attempts": (3, 1000), "max_depth": (None, 100), "when_full": ("refuse", "sideline"),
            "lease_growth": (1, 2), "ring": (True, False), "noisy_share": (None, 0.2),
        }  # fmt: skip
        names = self.chance.sample(sorted(choices), self.chance.randint(1, 3))
        policy = {name: self.chance.choice(choices[name]) for name in names}
        self.call("set_queue", SET_QUEUE, self.world.any_queue(self.chance), as_json(COMMON | policy))

    def flip_noise(self) -> None:
        share = self.chance.choice((None, None, 0.1, 0.3))
        self.call("set_queue", SET_QUEUE, self.chance.choice((LOUD, LOUD, "noisy")), as_json({"noisy_share": share}))

    def pause_and_resume(self) -> None:
        queue = self.world.any_queue(self.chance)
        self.call("pause", "select dibs.pause(%s)", queue)
        self.world.stop.wait(self.chance.random() * 0.1)
        extend = self.chance.choice((None, 1, 5))
        self.call("resume", "select dibs.resume(%s, make_interval(secs => %s::float8))", queue, extend)

    def renew(self) -> None:
        """From now on producers make another queue by its first job."""
        self.number += 1
        self.world.fresh = f"fresh-{self.number % 12}"

    def new_shards(self) -> None:
        """A queue of three shards: what its first jobs note of it is what may be forgotten."""
        if len(self.world.sharded) >= MOST_SHARDED:
            return
        name = f"shards-{len(self.world.sharded) + 1}"
        self.call("set_queue", SET_QUEUE, name, as_json(COMMON | {"shards": 3}))
        self.world.sharded.append(name)
        for _ in range(3):
            self.touch_shards()

    def touch_shards(self) -> None:
        """Let the shards of the newest sharded queue follow it again."""
        if not self.world.sharded:
            return
        name = self.world.sharded[-1]
        for _ in range(self.chance.randint(1, 6)):
            policy = COMMON | {"shards": self.chance.choice((2, 3)), "priority": self.chance.choice((4, 5))}
            self.call("set_queue", SET_QUEUE, name, as_json(policy))
            if self.chance.random() < 0.3:
                self.call("pause", "select dibs.pause(%s)", name)
                self.call("resume", "select dibs.resume(%s)", name)

    def drop(self) -> None:
        """Make a small queue and drop it, if nobody has put a job in meanwhile."""
        name = self.chance.choice(TINY)
        self.call("set_queue", SET_QUEUE, name, as_json(COMMON))
        self.call("drop_queue", "select dibs.drop_queue(%s)", name)

    def wipe(self) -> None:
        """Purge and delete all jobs of a small queue, and drop it."""
        name = self.chance.choice(TINY)
        self.call("purge", "select * from dibs.purge(%s, 10000)", name)
        self.call("delete", "select * from dibs.delete(%s, 10000)", as_json({"queue": name}))
        self.call("drop_queue", "select dibs.drop_queue(%s)", name)
