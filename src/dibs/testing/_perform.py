"""One attempt of a task without a database, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from dibs.ids import IdMaker
from dibs.job import Claimed, write_time
from dibs.states import Outcome
from dibs.testing._attempt import attempt as run

if TYPE_CHECKING:
    from dibs.client.task import Task
    from dibs.job import NewJob

_OUTCOMES = {
    "complete": Outcome.SUCCEEDED,
    "fail": Outcome.FAILED,
    "snooze": Outcome.SNOOZED,
    "release": Outcome.RELEASED,
    "park": Outcome.RELEASED,
}

DEFAULT_ATTEMPTS = 5
"""A queue's default."""
DEFAULT_PRIORITY = 5
"""A queue's default."""


@dataclass(frozen=True, slots=True)
class Performed:
    """The result of one attempt.

    ``error`` is the handler's exception, and ``final`` is true if it ends the job for good. ``delay`` is the number of
    seconds after which the handler asked to run again. ``follow_ups`` would be enqueued with the completion.
    """

    outcome: Outcome
    result: Any = None
    error: Exception | None = None
    final: bool = False
    delay: float | None = None
    follow_ups: tuple[NewJob, ...] = ()


def perform(task: Task[..., Any], /, *args: Any, **kwargs: Any) -> Performed:
    """Run one attempt of a task here, without a database: its arguments go through JSON, and it has a Context.

    The attempt is the first of those the task allows. ``task.using(max_attempts=1)`` makes it the last one.
    """
    asked = task.call(*args, **kwargs)
    ran = run(task.app, _claimed(asked), None)
    end = ran.end
    return Performed(_OUTCOMES[end.verb], end.result, ran.error, end.final, end.delay, ran.follow_ups)


def _claimed(asked: NewJob) -> Claimed:
    now = datetime.now(UTC)
    return Claimed(
        _key=IdMaker().make(1)[0].bytes,
        _token=uuid4().bytes,
        queue=asked.queue,
        kind=asked.kind,
        _payload=msgspec.json.encode(asked.payload).decode(),
        body=None,
        content_type=None,
        _headers=None if asked.headers is None else msgspec.json.encode(asked.headers).decode(),
        priority=DEFAULT_PRIORITY if asked.priority is None else asked.priority,
        run=1,
        attempt=1,
        max_attempts=asked.max_attempts or DEFAULT_ATTEMPTS,
        losses=0,
        _due_at=write_time(now),
        _deadline=None if asked.deadline is None else write_time(asked.deadline),
        _claimed_at=write_time(now),
        _lease_until=write_time(now + timedelta(seconds=30)),
    )
