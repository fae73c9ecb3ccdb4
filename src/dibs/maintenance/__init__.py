"""The upkeep: one file, one loop."""

from dibs.maintenance.chore import ChoreDone, ChoreFailed
from dibs.maintenance.upkeep import CHORES, loops, maintain, once

__all__ = ["CHORES", "ChoreDone", "ChoreFailed", "loops", "maintain", "once"]
