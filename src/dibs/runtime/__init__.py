"""Loops, waiting and ending. Knows nothing of jobs."""

from dibs.runtime.ending import end, wait_at_most
from dibs.runtime.loop import Backoff, Loop, Step, StepDone, StepFailed
from dibs.runtime.service import Service

__all__ = ["Backoff", "Loop", "Service", "Step", "StepDone", "StepFailed", "end", "wait_at_most"]
