"""Sends how runs ended to the database, in batches: while one is sent, the next one gathers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from dibs.db import calls
from dibs.errors import ConnectionLost, NotPermitted, blames_data
from dibs.events import OutcomesSent, RunEnded, RunLost, Trouble
from dibs.runtime.points import reach
from dibs.runtime.wake import wait_for
from dibs.states import Answer, Outcome, State
from dibs.worker.run_end import RunEnd, Verb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dibs.db.calls import Call
    from dibs.db.database_async import AsyncDatabase
    from dibs.events import Events
    from dibs.job import Claimed

ENDS_PER_BATCH = 500
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds to wait before ends are sent again: twice as long after each further failure, up to the longest."""


@dataclass(frozen=True, slots=True)
class Report:
    """How ends with the same verb are sent."""

    outcome: Outcome
    """The outcome of a run that ends with this verb."""
    call: Callable[[list[Claimed], list[RunEnd]], Call[Any]]
    read: Callable[[Any], tuple[Answer, State | None]]
    """Reads one of the call's answers: the answer itself, and the job's new state if it is in there."""


def _complete(jobs: list[Claimed], ends: list[RunEnd]) -> Call[Any]:
    results = [e.result for e in ends] if any(e.result is not None for e in ends) else None
    follow_ups = [e.follow_ups for e in ends] if any(e.follow_ups for e in ends) else None
    return calls.jobs.complete_many(jobs, results, follow_ups)


def _fail(jobs: list[Claimed], ends: list[RunEnd]) -> Call[Any]:
    return calls.jobs.fail_many(jobs, [e.error for e in ends], [e.final for e in ends], [e.delay for e in ends])


def _snooze(jobs: list[Claimed], ends: list[RunEnd]) -> Call[Any]:
    return calls.jobs.snooze_many(jobs, [e.delay or 0.0 for e in ends])


def _release(jobs: list[Claimed], ends: list[RunEnd]) -> Call[Any]:
    return calls.jobs.release_many(jobs, [e.delay for e in ends])


def _park(jobs: list[Claimed], _: list[RunEnd]) -> Call[Any]:
    return calls.jobs.park_many(jobs)


REPORTS: Mapping[Verb, Report] = {
    "complete": Report(Outcome.SUCCEEDED, _complete, lambda answer: (answer, None)),
    "fail": Report(Outcome.FAILED, _fail, lambda failed: (failed.answer, failed.state)),
    "snooze": Report(Outcome.SNOOZED, _snooze, lambda snoozed: (snoozed.answer, None)),
    "release": Report(Outcome.RELEASED, _release, lambda released: (released.answer, None)),
    "park": Report(Outcome.RELEASED, _park, lambda parked: (parked.answer, State.BLOCKED)),
}
"""How to send each verb, in the order in which those of a batch are sent."""


class _Unsent(NamedTuple):
    """Ends to send again after an error that may pass; ``failures`` counts the attempts so far."""

    retry_at: float
    failures: int
    verb: Verb
    ends: list[RunEnd]


class Completer:
    """Collects the ends of runs and sends them. ``on_done`` is called with ends that need no more sending."""

    def __init__(self, database: AsyncDatabase, events: Events, on_done: Callable[[Sequence[RunEnd]], None]) -> None:
        self._database = database
        self._events = events
        self._on_done = on_done
        self._unfinished: dict[bytes, RunEnd] = {}
        """All ends that were added and need more sending, by run, also those of the call that is under way."""
        self._ends: list[RunEnd] = []
        self._unsent: list[_Unsent] = []
        self._woken = asyncio.Event()
        self._ending = False

    def add(self, end: RunEnd) -> None:
        """Send this with the next batch."""
        self._unfinished[end.job._run_key] = end
        self._ends.append(end)
        self._woken.set()

    def give_up_job(self, job: Claimed) -> None:
        """Send nothing for a job that is no longer ours."""
        self._give_up([RunEnd(job, "none")])

    async def run(self) -> None:
        """Send ends until :meth:`end` is called and nothing is left to send."""
        while self._ends or self._unsent or not self._ending:
            await self._wait()
            self._woken.clear()
            await self._send_gathered()
            await self._send_again()

    def end(self) -> None:
        """Let ``run`` return when everything is sent. Cancelling it would lose the batch that is being sent."""
        self._ending = True
        self._woken.set()

    async def _wait(self) -> None:
        if self._unsent and not self._ends:
            retry_at = min(unsent.retry_at for unsent in self._unsent)
            await wait_for(self._woken, max(0.0, retry_at - time.monotonic()))
        elif not self._ends:
            await self._woken.wait()

    async def _send_gathered(self) -> None:
        while self._ends:
            batch, self._ends = self._ends[:ENDS_PER_BATCH], self._ends[ENDS_PER_BATCH:]
            verbs = {end.verb for end in batch}
            for verb in REPORTS:
                if verb in verbs:
                    await self._send(verb, [end for end in batch if end.verb == verb])
            if "none" in verbs:
                self._finish_completed([end for end in batch if end.verb == "none"])

    def _finish_completed(self, ends: list[RunEnd]) -> None:
        """Report jobs that the handler's own transaction has ended. There is nothing to send for them."""
        for end in ends:
            outcome = Outcome.FAILED if end.final else Outcome.SUCCEEDED
            self._publish(outcome, [end], [(Answer.OK, State.FAILED if end.final else None)])
        self._finish(ends)

    def _finish(self, ends: list[RunEnd]) -> None:
        for end in ends:
            self._unfinished.pop(end.job._run_key, None)
        self._on_done(ends)

    async def _send_again(self) -> None:
        now = time.monotonic()
        due = [unsent for unsent in self._unsent if unsent.retry_at <= now]
        self._unsent = [unsent for unsent in self._unsent if unsent.retry_at > now]
        for unsent in due:
            await self._send(unsent.verb, unsent.ends, unsent.failures)

    async def _send(self, verb: Verb, ends: list[RunEnd], failures: int = 0) -> None:
        try:
            await self._call(verb, ends)
        except Exception as error:
            self._events.tell(Trouble(f"sending outcomes ({verb})", error))
            if _is_refused(ends, error):
                await self._send_apart(verb, ends, error)
            else:
                self._send_later(verb, ends, failures + 1, error)
        else:
            self._finish(ends)

    async def _call(self, verb: Verb, ends: list[RunEnd]) -> None:
        report = REPORTS[verb]
        began = time.monotonic()
        reach("completer.before_send")
        answers = await self._database.run(report.call([end.job for end in ends], ends))
        reach("completer.after_send")
        if self._events.wants(OutcomesSent):
            self._events.tell(OutcomesSent(verb, len(ends), time.monotonic() - began))
        self._publish(report.outcome, ends, map(report.read, answers))

    async def _send_apart(self, verb: Verb, ends: list[RunEnd], error: Exception) -> None:
        """Halve a refused batch until the end that is to blame stands alone; that job fails."""
        if len(ends) > 1:
            for half in _halves(ends):
                await self._send(verb, half)
        elif verb == "complete":
            final = blames_data(error)
            text = f"the completion was refused: {error}"
            await self._send("fail", [msgspec.structs.replace(ends[0], verb="fail", error=text, final=final)])
        else:
            self._give_up(ends)

    def _send_later(self, verb: Verb, ends: list[RunEnd], failures: int, error: Exception) -> None:
        """Keep ends for as long as their leases last, so that no work is done twice.

        Send two smaller batches next time, since a lock may concern one of the jobs only. Do not halve if the
        connection was lost.
        """
        self._give_up([end for end in ends if end.is_too_late])
        left = [end for end in ends if not end.is_too_late]
        retry_at = time.monotonic() + min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 1, 10))
        parts = [left] if isinstance(error, ConnectionLost) else _halves(left)
        self._unsent += [_Unsent(retry_at, failures, verb, part) for part in parts if part]

    def _give_up(self, ends: list[RunEnd]) -> None:
        """Send nothing more for these ends: each job is another's already, or runs again when its lease is over."""
        for end in ends:
            self._events.tell(RunLost(end.job))
        if ends:
            self._finish(ends)

    def give_up_unfinished(self) -> None:
        """Give up all ends that could not be sent before the worker closes, also those of a call without an answer."""
        unfinished = list(self._unfinished.values())
        self._unsent, self._ends = [], []
        if completed := [end for end in unfinished if end.verb == "none"]:
            self._finish_completed(completed)
        self._give_up([end for end in unfinished if end.verb != "none"])

    def _publish(self, outcome: Outcome, ends: list[RunEnd], answers: Iterable[tuple[Answer, State | None]]) -> None:
        wants = self._events.wants(RunEnded)
        for end, (answer, state) in zip(ends, answers, strict=True):
            if answer is Answer.LOST:
                self._events.tell(RunLost(end.job))
            elif wants:
                self._events.tell(_run_ended(outcome, end, state))


def _is_refused(ends: list[RunEnd], error: Exception) -> bool:
    """Return true if the database refused one of these for good: its result, or one of its follow-ups."""
    forbidden = isinstance(error, NotPermitted) and any(end.follow_ups for end in ends)
    return forbidden or blames_data(error)


def _halves(ends: list[RunEnd]) -> list[list[RunEnd]]:
    middle = (len(ends) + 1) // 2
    return [ends[:middle], ends[middle:]]


def _run_ended(outcome: Outcome, end: RunEnd, state: State | None) -> RunEnded:
    if state is State.CANCELLED:
        outcome = Outcome.CANCELLED
    if state is None and outcome is Outcome.SUCCEEDED:
        state = State.SUCCEEDED
    elif state is None:
        state = State.SCHEDULED if end.delay else State.READY
    if end.error is None:
        return RunEnded(end.job, outcome, state, end.ran)
    error, _, trace = end.error.partition("\n")
    return RunEnded(end.job, outcome, state, end.ran, error, trace or None)
