"""The log line of each event: its level, a sentence for people, and the facts for machines."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from dibs.events import (
    ChildDied,
    ChildLeft,
    ChildStarted,
    CodeChanged,
    Event,
    JobEnqueued,
    JobsClaimed,
    JobStarted,
    KindUnknown,
    LeasesRenewed,
    NotInForce,
    OutageBegan,
    OutageEnded,
    OutcomesSent,
    PoolerFound,
    RunEnded,
    RunLost,
    StopAsked,
    Trouble,
    UpkeepDone,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from dibs.states import WAITING, Outcome
from dibs.traces import said as line_of_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.job import Claimed

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR


LONGEST = 2000
"""The number of characters of an error's first line in a log."""
LONGEST_TRACE = 8000
"""The number of characters of a traceback in a log: its beginning and, mostly, its end."""


class Line(NamedTuple):
    """One line of a log, and the traceback that belongs to it."""

    level: int
    text: str
    facts: dict[str, Any]
    traceback: str | None = None


def line_of(event: Event) -> Line:
    """Return the log line of an event."""
    return _LINES[type(event)](event)


def first_line(text: str) -> str:
    """Return the first line of an error, cut to the length that a log shows."""
    line = line_of_error(text.strip()).rstrip()
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def bounded(trace: str | None) -> str | None:
    """Cut the middle out of a long traceback."""
    if trace is None or len(trace) <= LONGEST_TRACE:
        return trace
    return f"{trace[: LONGEST_TRACE // 4]}\n…\n{trace[-LONGEST_TRACE * 3 // 4 :]}"


def named(error: BaseException) -> str:
    """Return an error as one line, with its class."""
    message = first_line(str(error))
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def facts_of(job: Claimed) -> dict[str, Any]:
    """Return the facts that identify a run."""
    return {"job_id": _id(job), "kind": job.kind, "queue": job.queue, "attempt": job.attempt}


def _id(job: Claimed) -> str:
    """Return ``str(job.id)`` in a fraction of its time: each job that ends is a line."""
    key = job._key.hex()
    return f"{key[:8]}-{key[8:12]}-{key[12:16]}-{key[16:20]}-{key[20:]}"


def _job(job: Claimed) -> str:
    return f"job {_id(job)} ({job.kind} on {job.queue}, attempt {job.attempt} of {job.max_attempts})"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _enqueued(event: JobEnqueued) -> Line:
    facts = {"job_id": str(event.id), "kind": event.kind, "queue": event.queue, "outcome": event.outcome}
    return Line(DEBUG, f"job {event.id} ({event.kind} on {event.queue}): {event.outcome}", facts)


def _claimed(event: JobsClaimed) -> Line:
    facts = {"queues": event.queues, "count": event.count, "took": event.took}
    return Line(DEBUG, f"claimed {_counted(event.count, 'job')} in {event.took:.3f} s", facts)


def _started(event: JobStarted) -> Line:
    facts = {**facts_of(event.job), "waited": event.waited}
    return Line(DEBUG, f"{_job(event.job)} begins after {event.waited:.3f} s", facts)


def _ended(event: RunEnded) -> Line:
    facts = {**facts_of(event.job), "outcome": event.outcome, "state": event.state, "ran": event.ran}
    text = f"{_job(event.job)} {event.outcome} after {event.ran:.3f} s"
    if event.state != str(event.outcome):
        text += f" and is {event.state}"
    if event.error:
        facts["error"] = first_line(event.error)
        text += f": {facts['error']}"
    return Line(_gravity(event), text, facts, bounded(event.traceback))


def _gravity(event: RunEnded) -> int:
    if event.outcome is Outcome.FAILED:
        return WARNING if event.state in WAITING else ERROR
    if event.outcome is Outcome.LOST:
        return WARNING
    return DEBUG if event.outcome is Outcome.RELEASED and not event.ran else INFO


def _lost(event: RunLost) -> Line:
    return Line(WARNING, f"{_job(event.job)} is no longer ours; its handler was stopped", facts_of(event.job))


def _renewed(event: LeasesRenewed) -> Line:
    facts = {"count": event.count, "took": event.took}
    return Line(DEBUG, f"renewed {_counted(event.count, 'lease')} in {event.took:.3f} s", facts)


def _unknown(event: KindUnknown) -> Line:
    text = f"{_job(event.job)} is left for other workers: its kind is not run here"
    return Line(WARNING, text, facts_of(event.job))


def _not_in_force(event: NotInForce) -> Line:
    return Line(ERROR, event.reason, {"what": event.what, "name": event.name})


def _sent(event: OutcomesSent) -> Line:
    facts = {"verb": event.verb, "count": event.count, "took": event.took}
    return Line(DEBUG, f"sent {_counted(event.count, 'outcome')} ({event.verb}) in {event.took:.3f} s", facts)


def _worker_started(event: WorkerStarted) -> Line:
    text = f"worker {event.number} is working on {', '.join(event.queues)}"
    return Line(INFO, text, {"worker": event.number, "queues": event.queues})


def _stopping(event: WorkerStopping) -> Line:
    text = f"stopping: {_counted(event.running, 'running job')} may finish within the grace time"
    return Line(INFO, text, {"running": event.running})


def _stopped(event: WorkerStopped) -> Line:
    return Line(INFO, f"stopped: {_counted(event.ended, 'job')} ended here", {"ended": event.ended})


def _upkept(event: UpkeepDone) -> Line:
    parts = ", ".join(f"{count} {what}" for what, count in event.counts.items() if count)
    facts = {"chore": event.chore, "count": event.count, "counts": dict(event.counts)}
    return Line(INFO, f"upkeep: {event.chore}: {parts or event.count}", facts)


def _trouble(event: Trouble) -> Line:
    facts = {"where": event.where, "error": named(event.error)}
    return Line(WARNING, f"{event.where} failed and is tried again: {facts['error']}", facts)


def _pooler_found(event: PoolerFound) -> Line:
    text = (
        "a pooler is between this worker and the database, and no notification gets through: an idle worker looks for"
        f" jobs every {event.poll:g} s (--poll), a cancel reaches a running job when its lease is renewed, and no"
        " statement is prepared; a DSN that bypasses the pooler avoids all three"
    )
    return Line(WARNING, text, {"poll": event.poll})


def _outage_began(event: OutageBegan) -> Line:
    why = f"no answer for {event.silence:.1f} s" if event.error is None else named(event.error)
    text = f"the database does not answer, and what it is asked is tried again: {why}"
    return Line(ERROR, text, {"silence": event.silence, "error": why})


def _outage_ended(event: OutageEnded) -> Line:
    return Line(WARNING, f"the database answers again, after {event.after:.1f} s", {"after": event.after})


def _child_started(event: ChildStarted) -> Line:
    return Line(INFO, f"process {event.pid} started", {"pid": event.pid})


def _child_died(event: ChildDied) -> Line:
    text = f"process {event.pid} ended by itself with status {event.status}"
    return Line(ERROR, text, {"pid": event.pid, "status": event.status})


def _child_left(event: ChildLeft) -> Line:
    text = f"process {event.pid} ended because it was asked to stop; no other is started in its place"
    return Line(WARNING, text, {"pid": event.pid})


def _stop_asked(event: StopAsked) -> Line:
    return Line(WARNING, f"worker {event.number} is asked to stop", {"worker": event.number})


def _code_changed(event: CodeChanged) -> Line:
    return Line(INFO, f"restarting, because these changed: {', '.join(event.files)}", {"files": event.files})


_LINES: dict[type[Event], Callable[[Any], Line]] = {
    JobEnqueued: _enqueued,
    JobsClaimed: _claimed,
    JobStarted: _started,
    RunEnded: _ended,
    RunLost: _lost,
    LeasesRenewed: _renewed,
    KindUnknown: _unknown,
    NotInForce: _not_in_force,
    OutcomesSent: _sent,
    WorkerStarted: _worker_started,
    StopAsked: _stop_asked,
    WorkerStopping: _stopping,
    WorkerStopped: _stopped,
    UpkeepDone: _upkept,
    Trouble: _trouble,
    PoolerFound: _pooler_found,
    OutageBegan: _outage_began,
    OutageEnded: _outage_ended,
    ChildStarted: _child_started,
    ChildDied: _child_died,
    ChildLeft: _child_left,
    CodeChanged: _code_changed,
}

LEVELS: dict[type[Event], int] = {
    **dict.fromkeys(_LINES, WARNING),
    **dict.fromkeys((JobEnqueued, JobsClaimed, JobStarted, LeasesRenewed, OutcomesSent), DEBUG),
    **dict.fromkeys((WorkerStarted, WorkerStopping, WorkerStopped, UpkeepDone, ChildStarted, CodeChanged), INFO),
    **dict.fromkeys((RunEnded, NotInForce, OutageBegan, ChildDied), ERROR),
}
"""The highest level that a line of each event can have. A log of a higher level does not subscribe to the event."""
