"""The upkeep: one file, one loop."""

from dibs.maintenance.done import Done, Trouble
from dibs.maintenance.upkeep import CHORES, loops, maintain, once

__all__ = ["CHORES", "Done", "Trouble", "loops", "maintain", "once"]
