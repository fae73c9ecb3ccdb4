"""The upkeep: SQL knows the chores and when they are due; the loops here ask for them."""

from dibs.maintenance.chore import ChoreDone, ChoreFailed
from dibs.maintenance.upkeep import CHORES, chore_loops, do, do_fully, maintain, once

__all__ = ["CHORES", "ChoreDone", "ChoreFailed", "chore_loops", "do", "do_fully", "maintain", "once"]
