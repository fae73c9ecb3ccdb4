"""The background loop that all others are made of.

A step does its work and returns how many seconds to sleep before the next. An error does not end the loop: it is
reported, and the pause before the next step grows with each error in a row. These pauses are random, so that not all
processes come back at once after an outage.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

import msgspec

from dibs.runtime.wake import Wait, wait_for

Step = Callable[[], Awaitable[float]]
"""Does a round of work. Returns how many seconds to sleep before the next."""


class StepDone(msgspec.Struct, frozen=True):
    """A step was done. ``after_failures`` is the number of failures in a row before it."""

    loop: str
    took: float
    sleeps: float
    after_failures: int = 0


class StepFailed(msgspec.Struct, frozen=True):
    """A step failed. ``failures`` is the number of failures in a row."""

    loop: str
    error: Exception
    failures: int
    sleeps: float


Listener = Callable[[StepDone | StepFailed], None]


class Backoff(msgspec.Struct, frozen=True):
    """The pause after failures in a row: doubles from ``first`` up to ``longest``, less a random part of up to half."""

    first: float = 0.5
    longest: float = 30.0

    def delay(self, failures: int) -> float:
        """Return the seconds to sleep after that many failures in a row."""
        full = min(self.longest, self.first * 2.0 ** min(failures - 1, 30))
        return full * random.uniform(0.5, 1.0)  # noqa: S311


class Loop:
    """Runs a step again and again until stopped."""

    def __init__(
        self,
        name: str,
        step: Step,
        *,
        listener: Listener = lambda _: None,
        backoff: Backoff | None = None,
        wait: Wait = wait_for,
    ) -> None:
        self.name = name
        self._step = step
        self._listener = listener
        self._backoff = backoff or Backoff()
        self._wait = wait
        self._woken = asyncio.Event()
        self._stopping = False
        self._failures = 0

    def wake(self) -> None:
        """End the sleep, or skip the next one."""
        self._woken.set()

    def stop(self) -> None:
        """End after the step that is running now."""
        self._stopping = True
        self._woken.set()

    async def run(self) -> None:
        """Run until stopped. Only a cancellation interrupts a step."""
        while not self._stopping:
            self._woken.clear()
            sleeps = await self._do_step()
            if not self._stopping:
                await self._wait(self._woken, sleeps)

    async def _do_step(self) -> float:
        began = time.monotonic()
        try:
            sleeps = await self._step()
        except Exception as error:
            self._failures += 1
            sleeps = self._backoff.delay(self._failures)
            self._listener(StepFailed(self.name, error, self._failures, sleeps))
            return sleeps
        failures, self._failures = self._failures, 0
        self._listener(StepDone(self.name, time.monotonic() - began, sleeps, failures))
        return sleeps
