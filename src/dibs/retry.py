"""The exceptions a handler may raise about its job, and the rules for trying again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dibs.policy import Backoff, Seconds, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping


class GiveUp(Exception):
    """Raise it to say that this job can never work: it is dead at once."""


class Snooze(Exception):
    """Raise it to be run again after ``delay``, without charging an attempt."""

    def __init__(self, delay: Seconds) -> None:
        super().__init__(f"snoozed for {seconds(delay):g} s")
        self.delay = seconds(delay)


class RetryAfter(Exception):
    """Raise it to fail this attempt and be tried again after ``delay`` instead of the backoff."""

    def __init__(self, delay: Seconds, message: str = "") -> None:
        super().__init__(message or f"try again in {seconds(delay):g} s")
        self.delay = seconds(delay)


class Retry(msgspec.Struct, frozen=True):
    """The rules for trying a task again: how often and how soon.

    ``never`` lists exceptions that end the job at once; ``after`` gives some their own delay. The most specific rule
    wins.
    """

    max_attempts: int | None = None
    backoff: Backoff | None = None
    never: tuple[type[BaseException], ...] = ()
    after: Mapping[type[BaseException], Seconds] = {}

    def ends(self, error: BaseException) -> bool:
        """Return True if an error ends the job at once."""
        return isinstance(error, GiveUp) or (isinstance(error, self.never) and self.delay(error) is None)

    def delay(self, error: BaseException) -> float | None:
        """Return the delay an error asks for, if it does."""
        if isinstance(error, RetryAfter):
            return error.delay
        rules: list[Any] = [cls for cls in type(error).__mro__ if cls in self.after or cls in self.never]
        return seconds(self.after[rules[0]]) if rules and rules[0] in self.after else None
