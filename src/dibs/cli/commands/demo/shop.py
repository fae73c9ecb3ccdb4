"""The shop of the demo: its kinds of jobs, the mishap of each, and the tasks that run them."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

from dibs.client.app import App
from dibs.client.context import context
from dibs.job import NewJob
from dibs.policy import QueuePolicy, exponential
from dibs.retry import GiveUp, Snooze
from dibs.states import State

if TYPE_CHECKING:
    from collections.abc import Callable

MAIL, IMAGES, BILLING, REPORTS = QUEUES = ("demo.mail", "demo.images", "demo.billing", "demo.reports")
ATTEMPTS = 3
POLICY: QueuePolicy = {
    "max_attempts": ATTEMPTS,
    "lease": 10.0,
    "backoff": exponential(0.3, cap=1.0, jitter=0.3),
    "ttl": 3600.0,
}
FEWEST, MOST = 20, 5000
STRIDE = 7919
"""A prime above MOST: its multiples, modulo the number of jobs, are every place once, in a mixed order."""


class PartnerDown(Exception):
    """The partner does not answer."""


class BankTimeout(Exception):
    """The bank takes too long."""


class Mishap(Enum):
    """An event that a kind of job meets on its way."""

    NONE = "runs at once"
    FLAKY = "fails the first time"
    EARLY = "has to wait for its data, so it is snoozed"
    FATAL = "fails for good until somebody retries it"
    HOPELESS = "fails at every attempt until somebody retries it"
    LATE = "is past its deadline before it is due"
    CRASH = "its worker vanishes"
    UNWANTED = "is cancelled"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of job: its queue, how many of a hundred jobs have it, and its mishap."""

    name: str
    queue: str
    priority: int
    percent: int
    mishap: Mishap = Mishap.NONE
    error: Exception | None = None

    def job(self, number: int, now: datetime) -> NewJob:
        """Return a new job of this kind."""
        late = self.mishap is Mishap.LATE
        return NewJob(
            queue=self.queue,
            kind=self.name,
            payload={"number": number},
            priority=self.priority,
            delay=5.0 if late else 3600.0 if self.mishap is Mishap.UNWANTED else None,
            deadline=now + timedelta(seconds=1.5) if late else None,
        )

    @property
    def expected_end(self) -> State:
        """The state of its jobs when the demo is over."""
        return State.CANCELLED if self.mishap is Mishap.UNWANTED else State.SUCCEEDED


KINDS = (
    Kind("charge_card", BILLING, 9, 10, Mishap.FLAKY, BankTimeout("no answer from the bank")),
    Kind("send_mail", MAIL, 7, 42),
    Kind("resize_image", IMAGES, 5, 28),
    Kind("call_partner", BILLING, 5, 4, Mishap.HOPELESS, PartnerDown("no route to partner.example")),
    Kind("parse_upload", IMAGES, 4, 4, Mishap.FATAL, GiveUp("not an image")),
    Kind("build_report", REPORTS, 3, 8, Mishap.EARLY),
    Kind("remind", MAIL, 2, 4, Mishap.LATE),
    Kind("transcode", IMAGES, 6, 0, Mishap.CRASH),
    Kind("newsletter", MAIL, 1, 0, Mishap.UNWANTED),
)
BY_NAME = {kind.name: kind for kind in KINDS}


def make_jobs(count: int, now: datetime) -> list[NewJob]:
    """Return the jobs of the demo: at least one of each kind, mixed, and filled up with mail."""
    mail = BY_NAME["send_mail"]
    kinds = [kind for kind in KINDS if kind is not mail for _ in range(max(1, count * kind.percent // 100))]
    kinds += [mail] * (count - len(kinds))
    return [kinds[n * STRIDE % count].job(n, now) for n in range(count)]


def make_app(dsn: str, pace: float) -> App:
    """Return an app with a task for each kind, whose jobs take about ``pace`` seconds."""
    app = App(dsn)
    for kind in KINDS:
        app.task(name=kind.name, queue=kind.queue)(_handler(kind, pace))
    return app


def _handler(kind: Kind, pace: float) -> Callable[[int], Any]:
    async def handle(number: int) -> str:
        job = context().job
        if kind.mishap is Mishap.EARLY and job.run == 1:
            raise Snooze(0.8)
        for step in range(3):
            if kind.queue == IMAGES:
                context().progress(step, 3)
            await asyncio.sleep(pace / 3 * random.uniform(0.4, 1.6))  # noqa: S311
        # A retry by hand repairs the cause: these are the runs before it.
        failing = {Mishap.FLAKY: 1, Mishap.FATAL: 1, Mishap.HOPELESS: ATTEMPTS}.get(kind.mishap, 0)
        if kind.error and job.run <= failing:
            raise kind.error
        return f"{kind.name} {number}"

    return handle
