# Written by tools/unasync.py from steps_async.py: change that and run `make sync`.
"""Verbs on many jobs, done in steps: each step is a short transaction."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Unpack

from dibs.operation import Changed, StepArgs

if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.client.noun import Run
    from dibs.db.calls import Call
    from dibs.operation import Step, Steps

STEP, LOOK = 1000, 10_000
"""The most jobs that one step changes, and the most that one step of a dry run counts."""
REFUSED = 1000
"""The most jobs that an answer names as still dead."""


def in_steps(run: Run, ask: Callable[[StepArgs, int], Call[Step]], **steps: Unpack[Steps]) -> Changed:
    """Repeat a step until no job is left, or until ``max`` or ``within`` ends it.

    ``ask`` makes the call of a step, from its arguments and the number of jobs that matched in the steps before.
    """
    max, within, dry_run = steps.get("max"), steps.get("within"), steps.get("dry_run", False)
    until = math.inf if within is None else time.monotonic() + within
    size = LOOK if dry_run else STEP
    so_far = Changed(matched=0, done=0, operation=None, more=True, next=steps.get("after"))
    while so_far.more and (max is None or so_far.matched < max):
        most = size if max is None else min(size, max - so_far.matched)
        step = run(ask(StepArgs(most, so_far.next, so_far.operation, dry_run), so_far.matched))
        so_far = Changed(
            matched=so_far.matched + step.matched,
            done=so_far.done + step.done,
            operation=step.operation,
            more=step.next is not None,
            next=step.next,
            refused=(*so_far.refused, *step.refused)[:REFUSED],
        )
        if on_step := steps.get("on_step"):
            on_step(so_far)
        if time.monotonic() >= until:
            break
    return so_far
