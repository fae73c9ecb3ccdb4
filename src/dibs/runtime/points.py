"""Named points in the code where a test can step in: to crash the process, to raise, or to look.

Unless a test armed a point, passing one only looks at an empty dictionary. An environment variable arms points in a
child process: ``DIBS_CRASH_AT=completer.before_send`` kills it the first time it gets there, ``worker.claimed:3`` the
third time. Separate several points by commas.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dibs.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

VARIABLE = "DIBS_CRASH_AT"

POINTS: Mapping[str, str] = {
    "enqueue.before_send": "an enqueue has its ids and nothing was sent",
    "enqueue.after_send": "an enqueue was answered; outside your transaction it is committed",
    "database.before_send": "a statement is about to be sent, on a connection of the pool",
    "database.after_send": "a statement was answered, and is committed",
    "transaction.before_commit": "a handler's transaction has completed its job and is about to be committed",
    "transaction.after_commit": "a handler's transaction is committed; the worker does not know it yet",
    "worker.claimed": "jobs are leased to the worker, and none of them has begun",
    "worker.before_run": "a handler is about to be called",
    "worker.after_run": "a handler has returned, and nothing was reported",
    "worker.stopping": "the worker claims no more and has not given anything back yet",
    "completer.before_send": "outcomes are about to be sent",
    "completer.after_send": "outcomes were sent, answered and committed; the worker does not know it yet",
    "keeper.before_send": "leases are about to be renewed",
    "keeper.after_send": "leases were renewed; the worker does not know it yet",
}
"""Every point, and the facts that hold there."""


class Armed:
    """A point at which an action is to happen. ``passed`` counts how often it was reached."""

    def __init__(self, point: str, action: Callable[[], None], nth: int) -> None:
        self.point = point
        self.passed = 0
        self._action = action
        self._nth = nth
        self._lock = threading.Lock()

    @property
    def fired(self) -> bool:
        """True once the action has happened."""
        return self.passed >= self._nth

    def reached(self) -> None:
        """Count, and act the nth time."""
        with self._lock:
            self.passed += 1
            is_nth = self.passed == self._nth
        if is_nth:
            self._action()


_armed: dict[str, Armed] = {}


def reach(point: str) -> None:
    """Pass a point. Does nothing unless a test armed it."""
    if _armed and (found := _armed.get(point)) is not None:
        found.reached()


@contextmanager
def armed(point: str, action: Callable[[], None], *, nth: int = 1) -> Iterator[Armed]:
    """Within the block, call ``action`` the nth time this process gets to a point. Its exception is raised there."""
    armed_point = _arm(point, action, nth)
    try:
        yield armed_point
    finally:
        del _armed[point]


def crash() -> None:
    """End this process as a power cut would: nothing is flushed, closed or given back."""
    os.kill(os.getpid(), signal.SIGKILL)


def crash_at(point: str, *, nth: int = 1) -> dict[str, str]:
    """Return the environment that makes a child process crash the nth time it gets to a point."""
    _check(point, nth)
    return {VARIABLE: f"{point}:{nth}"}


def _arm(point: str, action: Callable[[], None], nth: int) -> Armed:
    _check(point, nth)
    if point in _armed:
        raise InvalidArgument(f"the point {point} is armed already", hint="one thing at a time can happen at a point")
    return _armed.setdefault(point, Armed(point, action, nth))


def _check(point: str, nth: int) -> None:
    if point not in POINTS:
        from difflib import get_close_matches

        near = get_close_matches(point, POINTS, 1, 0.4)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(POINTS)}"
        raise InvalidArgument(f"there is no point {point!r}", hint=hint)
    if nth < 1:
        raise InvalidArgument(f"a point is reached for the first time at 1, not {nth}")


def _arm_from(text: str) -> None:
    for item in text.split(","):
        point, _, nth = item.strip().partition(":")
        if nth and not nth.isdecimal():
            raise InvalidArgument(f"{VARIABLE} is point:nth, such as worker.claimed:2, not {item!r}")
        _arm(point, crash, int(nth or 1))


if os.environ.get(VARIABLE):
    _arm_from(os.environ[VARIABLE])
