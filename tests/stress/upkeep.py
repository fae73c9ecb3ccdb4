"""Threads that do chores, kill backends, and look at what must hold at any moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.stress.actor import Actor
from tests.stress.checks import AT_ANY_MOMENT

if TYPE_CHECKING:
    from tests.stress.world import World

OFTEN = ("rescue", "rescue", "rescue", "expire")
RARELY = ("roll_up", "forget", "prune", "schedule", "make_days")
REPAIRS = ("repair_limits", "repair_groups")


class Caretaker(Actor):
    """Does chores. In half of all runs none that repairs: a repair hides what went wrong before it."""

    pause = 0.4

    def __init__(self, world: World, number: int = 0) -> None:
        super().__init__(world, number)
        self.repairs = self.chance.random() < 0.5
        self.make_days_at = self.chance.random() * 20

    def step(self) -> None:
        chore = self.chance.choice(
            OFTEN if self.chance.random() < 0.8 else (*RARELY, *(REPAIRS if self.repairs else ()))
        )
        if chore == "make_days" and self.world.seconds() < self.make_days_at:
            return
        sql = "select outcome, counts, error from dibs.do_chore(%s, true)"
        [[outcome, counts, error]] = self.db.run("chore", sql, (chore,))
        self.world.calls[f"chore {chore} {outcome}"] += 1
        if outcome == "failed" and "lock timeout" not in error:
            self.world.find(f"the chore {chore} failed: {error}", f"{counts} {error}")
        if counts.get("repaired"):
            self.world.find(f"{chore} had something to mend", str(counts))


class Killer(Actor):
    """Ends backends of others in the middle of what they do."""

    pause = 3.0

    def step(self) -> None:
        names = [name for name in self.world.pids if not name.startswith(("killer", "watcher", "main"))]
        pid = self.world.pids[self.chance.choice(names)]
        self.world.killed.add(pid)
        self.db.run("kill", "select pg_terminate_backend(%s)", (pid,))


class Watcher(Actor):
    """Asks for what holds whenever nothing is half done, and tells producers when too much waits."""

    pause = 0.4

    def step(self) -> None:
        [[waiting]] = self.db.run(
            "look", "select (select count(*) from dibs.ready) + (select count(*) from dibs.blocked)"
        )
        if waiting > self.world.backlog:
            self.world.crowded.set()
        else:
            self.world.crowded.clear()
        for check in AT_ANY_MOMENT:
            rows = self.db.run("check", check.sql)
            if rows:
                self.world.find(f"{check.name} (seen while it ran)", check.describe(rows))
