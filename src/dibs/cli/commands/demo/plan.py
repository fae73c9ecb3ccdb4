"""What the demo enqueues, what befalls each job, and how each must end."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from dibs.job import NewJob
from dibs.policy import QueuePolicy, exponential
from dibs.states import State


class Mishap(Enum):
    """What befalls a job on its way."""

    NONE = "runs at once"
    FLAKY = "fails the first time"
    EARLY = "has to wait for something, so it is snoozed"
    FATAL = "can never work until someone repairs the cause"
    HOPELESS = "fails at every attempt until someone repairs the cause"
    LATE = "is past its deadline before it is due"
    CRASH = "its worker vanishes"
    UNWANTED = "is cancelled"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of job: where it goes, how many there are in a hundred, what befalls them."""

    name: str
    queue: str
    priority: int
    percent: int
    mishap: Mishap = Mishap.NONE
    error: str = ""


MAIL, IMAGES, BILLING, REPORTS = "demo.mail", "demo.images", "demo.billing", "demo.reports"

KINDS = (
    Kind("charge_card", BILLING, 9, 10, Mishap.FLAKY, "TimeoutError: no answer from the bank"),
    Kind("send_mail", MAIL, 7, 0),
    Kind("resize_image", IMAGES, 5, 28),
    Kind("call_partner", BILLING, 5, 4, Mishap.HOPELESS, "ConnectionError: the partner is down"),
    Kind("parse_upload", IMAGES, 4, 4, Mishap.FATAL, "ValueError: not an image"),
    Kind("build_report", REPORTS, 3, 8, Mishap.EARLY),
    Kind("remind", MAIL, 2, 4, Mishap.LATE),
    Kind("transcode", IMAGES, 6, 0, Mishap.CRASH),
    Kind("newsletter", MAIL, 1, 0, Mishap.UNWANTED),
)
BY_NAME = {kind.name: kind for kind in KINDS}
QUEUES = (MAIL, IMAGES, BILLING, REPORTS)
POLICY: QueuePolicy = {
    "max_attempts": 3,
    "lease": 10.0,
    "backoff": exponential(0.3, cap=1.0, jitter=0.3),
    "ttl": 3600.0,
}

FEWEST, MOST = 20, 5000
SHUFFLER = 7919
"""A prime above MOST: its multiples visit every place once, in a mixed order that is always the same."""


def make_jobs(count: int, now: datetime) -> list[NewJob]:
    """The demo's jobs, kinds mixed; at least one of each kind, and the rest is mail."""
    kinds = [kind for kind in KINDS for _ in range(max(1, count * kind.percent // 100))]
    kinds += [BY_NAME["send_mail"]] * (count - len(kinds))
    return [_job(kinds[n * SHUFFLER % count], n, now) for n in range(count)]


def _job(kind: Kind, number: int, now: datetime) -> NewJob:
    late = kind.mishap is Mishap.LATE
    delay = {Mishap.LATE: 5.0, Mishap.UNWANTED: 3600.0}.get(kind.mishap, 0.0)
    return NewJob(
        queue=kind.queue,
        kind=kind.name,
        payload={"number": number},
        priority=kind.priority,
        delay=delay or None,
        deadline=now + timedelta(seconds=1.5) if late else None,
    )


def expected_end(kind: str) -> State:
    """How a job of that kind must have ended when the demo is over."""
    return State.CANCELLED if BY_NAME[kind].mishap is Mishap.UNWANTED else State.SUCCEEDED
