"""The upkeep: SQL knows the chores and when they are due; here are the loops that ask."""

from dibs.maintenance.chore import ChoreDone, ChoreFailed
from dibs.maintenance.upkeep import CHORES, complete, do, loops, maintain, once

__all__ = ["CHORES", "ChoreDone", "ChoreFailed", "complete", "do", "loops", "maintain", "once"]
