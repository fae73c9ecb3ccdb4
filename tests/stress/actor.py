"""A thread that repeats small random steps until the run stops."""

from __future__ import annotations

import threading
import traceback
from typing import TYPE_CHECKING

import psycopg

from tests.stress.caller import Caller, Refused

if TYPE_CHECKING:
    from tests.stress.world import World


class Actor:
    """Repeats `step`. A step that is refused is simply over."""

    pause = 0.0
    """How long it rests between steps, at most."""

    def __init__(self, world: World, number: int = 0) -> None:
        self.world = world
        self.name = f"{type(self).__name__.lower()}-{number}"
        self.db = Caller(world, self.name)
        self.chance = self.db.chance
        self.thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def step(self) -> None:
        """Do one thing."""
        raise NotImplementedError

    def _run(self) -> None:
        try:
            while not self.world.stop.is_set():
                self._try()
                if self.pause:
                    self.world.stop.wait(self.chance.random() * self.pause)
        except Exception:
            self.world.find(f"{self.name} fell over", traceback.format_exc())
        finally:
            self.db.close()

    def _try(self) -> None:
        try:
            self.step()
        except (Refused, psycopg.OperationalError):
            self.db.reset()
