"""Loops and waiting; knows no jobs."""

from dibs.runtime.ending import end, limited
from dibs.runtime.loop import Loop, Retrying, Step, Stepped, Stumbled
from dibs.runtime.service import Service

__all__ = ["Loop", "Retrying", "Service", "Step", "Stepped", "Stumbled", "end", "limited"]
