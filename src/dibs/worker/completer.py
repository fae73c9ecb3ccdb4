"""Sends how runs ended to the database in batches: what gathers while one batch is sent goes with the next."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dibs.db import calls
from dibs.errors import ConnectionLost
from dibs.events import OutcomesSent, RunEnded, RunLost, Trouble
from dibs.runtime.points import reach
from dibs.states import Answer, Outcome, State
from dibs.worker.run_end import RunEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dibs.db.calls import Call
    from dibs.db.database_async import AsyncDatabase
    from dibs.events import Events
    from dibs.job import Claimed
    from dibs.worker.run_end import Verb

BATCH = 500


@dataclass(frozen=True, slots=True)
class Sending:
    """How the ends of one verb are sent: the outcome they stand for, the call, and how to read one of its answers."""

    outcome: Outcome
    call: Callable[[list[Claimed], list[RunEnd]], Call[Any]]
    read: Callable[[Any], tuple[Answer, State | None]]
    """The answer, and the job's state now where the answer tells it."""


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


SENDING: Mapping[Verb, Sending] = {
    "complete": Sending(Outcome.SUCCEEDED, _complete, lambda answer: (answer, None)),
    "fail": Sending(Outcome.FAILED, _fail, lambda failed: (failed.answer, failed.state)),
    "snooze": Sending(Outcome.SNOOZED, _snooze, lambda told: (told.answer, None)),
    "release": Sending(Outcome.RELEASED, _release, lambda told: (told.answer, None)),
}


class Completer:
    """Collects the ends of runs and sends them; ``done`` is called with each batch that is settled."""

    def __init__(self, database: AsyncDatabase, events: Events, done: Callable[[Sequence[RunEnd]], None]) -> None:
        self._database = database
        self._events = events
        self._done = done
        self._ends: list[RunEnd] = []
        self._more = asyncio.Event()
        self._ending = False

    def add(self, end: RunEnd) -> None:
        """Send this with the next batch."""
        self._ends.append(end)
        self._more.set()

    def lose(self, job: Claimed) -> None:
        """Settle a job that is no longer ours: nothing is sent."""
        self._events.tell(RunLost(job))
        self._done([RunEnd(job, "none")])

    async def run(self) -> None:
        """Send until told to end, and then what is left."""
        while self._ends or not self._ending:
            await self._more.wait()
            self._more.clear()
            await self._flush()

    def end(self) -> None:
        """Let ``run`` return when everything is sent. Cancelling it would lose a batch that is under way."""
        self._ending = True
        self._more.set()

    async def _flush(self) -> None:
        while self._ends:
            batch, self._ends = self._ends[:BATCH], self._ends[BATCH:]
            for verb in SENDING:
                if ends := [e for e in batch if e.verb == verb]:
                    await self._send(verb, ends)
            if done := [e for e in batch if e.verb == "none"]:
                self._tell(Outcome.SUCCEEDED, done, [(Answer.OK, None)] * len(done))
            self._done(batch)

    async def _send(self, verb: Verb, ends: list[RunEnd]) -> None:
        """Send them, through outages, for as long as the leases last."""
        while True:
            try:
                return await self._try(verb, ends)
            except ConnectionLost as error:
                self._events.tell(Trouble(f"sending outcomes ({verb})", error))
                ends = [e for e in ends if not self._is_too_late(e)]
                if not ends:
                    return None
            except Exception as error:
                return await self._send_apart(verb, ends, error)

    def _is_too_late(self, end: RunEnd) -> bool:
        late = self._ending or end.is_too_late
        if late:
            self._events.tell(RunLost(end.job))  # Its lease expires, and the job is run again.
        return late

    async def _send_apart(self, verb: Verb, ends: list[RunEnd], error: Exception) -> None:
        """One end that is refused must not spoil the others: halve the batch until it stands alone."""
        self._events.tell(Trouble(f"sending outcomes ({verb})", error))
        if len(ends) > 1:
            middle = len(ends) // 2
            await self._send(verb, ends[:middle])
            await self._send(verb, ends[middle:])
        elif verb == "complete":
            refused = RunEnd(ends[0].job, "fail", error=f"the completion was refused: {error}", final=True)
            await self._send("fail", [refused])
        else:
            self._events.tell(RunLost(ends[0].job))

    async def _try(self, verb: Verb, ends: list[RunEnd]) -> None:
        sending = SENDING[verb]
        began = time.monotonic()
        reach("completer.before_send")
        answers = await self._database.run(sending.call([e.job for e in ends], ends))
        reach("completer.after_send")
        if self._events.wants(OutcomesSent):
            self._events.tell(OutcomesSent(verb, len(ends), time.monotonic() - began))
        self._tell(sending.outcome, ends, map(sending.read, answers))

    def _tell(self, outcome: Outcome, ends: list[RunEnd], answers: Iterable[tuple[Answer, State | None]]) -> None:
        wants = self._events.wants(RunEnded)
        for end, (answer, state) in zip(ends, answers, strict=True):
            if answer is Answer.LOST:
                self._events.tell(RunLost(end.job))
            elif wants:
                self._events.tell(_ended(outcome, end, state))


def _ended(outcome: Outcome, end: RunEnd, state: State | None) -> RunEnded:
    if state is State.CANCELLED:
        outcome = Outcome.CANCELLED
    if state is None:
        waits = State.SCHEDULED if end.delay else State.READY
        state = State.SUCCEEDED if outcome is Outcome.SUCCEEDED else waits
    error = end.error.partition("\n")[0] if end.error else None
    return RunEnded(end.job, outcome, state, end.ran, error)
