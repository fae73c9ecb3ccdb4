"""Sends how runs ended to the database in batches: what gathers while one batch is sent goes with the next."""

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

BATCH = 500
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0
"""How many seconds to wait before ends are sent again: doubling from the first to the longest."""


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


def _park(jobs: list[Claimed], _: list[RunEnd]) -> Call[Any]:
    return calls.jobs.park_many(jobs)


SENDING: Mapping[Verb, Sending] = {
    "complete": Sending(Outcome.SUCCEEDED, _complete, lambda answer: (answer, None)),
    "fail": Sending(Outcome.FAILED, _fail, lambda failed: (failed.answer, failed.state)),
    "snooze": Sending(Outcome.SNOOZED, _snooze, lambda told: (told.answer, None)),
    "release": Sending(Outcome.RELEASED, _release, lambda told: (told.answer, None)),
    "park": Sending(Outcome.RELEASED, _park, lambda told: (told.answer, State.BLOCKED)),
}


class _Kept(NamedTuple):
    """Ends that could not be sent because of an error that may pass: when to try again, and how often we have."""

    at: float
    tries: int
    verb: Verb
    ends: list[RunEnd]


class Completer:
    """Collects the ends of runs and sends them; ``done`` is called with those that are settled."""

    def __init__(self, database: AsyncDatabase, events: Events, done: Callable[[Sequence[RunEnd]], None]) -> None:
        self._database = database
        self._events = events
        self._done = done
        self._ends: list[RunEnd] = []
        self._kept: list[_Kept] = []
        self._more = asyncio.Event()
        self._ending = False

    def add(self, end: RunEnd) -> None:
        """Send this with the next batch."""
        self._ends.append(end)
        self._more.set()

    def lose(self, job: Claimed) -> None:
        """Settle a job that is no longer ours: nothing is sent."""
        self._lose([RunEnd(job, "none")])

    async def run(self) -> None:
        """Send until told to end, and then what is left."""
        while self._ends or self._kept or not self._ending:
            await self._wait()
            self._more.clear()
            await self._flush()
            await self._try_again()

    def end(self) -> None:
        """Let ``run`` return when everything is sent. Cancelling it would lose a batch that is under way."""
        self._ending = True
        self._more.set()

    async def _wait(self) -> None:
        if self._kept and not self._ends:
            await wait_for(self._more, max(0.0, min(kept.at for kept in self._kept) - time.monotonic()))
        elif not self._ends:
            await self._more.wait()

    async def _flush(self) -> None:
        while self._ends:
            batch, self._ends = self._ends[:BATCH], self._ends[BATCH:]
            verbs = {end.verb for end in batch}
            for verb in SENDING:
                if verb in verbs:
                    await self._send(verb, [end for end in batch if end.verb == verb])
            if "none" in verbs:
                done = [end for end in batch if end.verb == "none"]
                self._tell(Outcome.SUCCEEDED, done, [(Answer.OK, None)] * len(done))
                self._done(done)

    async def _try_again(self) -> None:
        now = time.monotonic()
        due = [kept for kept in self._kept if kept.at <= now]
        self._kept = [kept for kept in self._kept if kept.at > now]
        for kept in due:
            await self._send(kept.verb, kept.ends, kept.tries)

    async def _send(self, verb: Verb, ends: list[RunEnd], tries: int = 0) -> None:
        try:
            await self._try(verb, ends)
        except Exception as error:
            self._events.tell(Trouble(f"sending outcomes ({verb})", error))
            if _is_refused(ends, error):
                await self._send_apart(verb, ends, error)
            else:
                self._keep(verb, ends, tries + 1, error)
        else:
            self._done(ends)

    async def _send_apart(self, verb: Verb, ends: list[RunEnd], error: Exception) -> None:
        """One end that is refused must not spoil the others: halve the batch until it stands alone."""
        if len(ends) > 1:
            for half in _halves(ends):
                await self._send(verb, half)
        elif verb == "complete":
            final = blames_data(error)
            text = f"the completion was refused: {error}"
            await self._send("fail", [msgspec.structs.replace(ends[0], verb="fail", error=text, final=final)])
        else:
            self._lose(ends)

    def _keep(self, verb: Verb, ends: list[RunEnd], tries: int, error: Exception) -> None:
        """Keep them for as long as their leases last: what was done need not be done again.

        A lock may concern one of them only, so each time there are two smaller batches, unless nothing was reached.
        """
        self._lose([end for end in ends if end.is_too_late])
        left = [end for end in ends if not end.is_too_late]
        at = time.monotonic() + min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(tries, 10))
        parts = [left] if isinstance(error, ConnectionLost) else _halves(left)
        self._kept += [_Kept(at, tries, verb, part) for part in parts if part]

    def _lose(self, ends: list[RunEnd]) -> None:
        """Settle jobs whose leases expire: they are run again."""
        for end in ends:
            self._events.tell(RunLost(end.job))
        if ends:
            self._done(ends)

    def give_up(self) -> None:
        """Settle what could not be sent."""
        self._lose([end for kept in self._kept for end in kept.ends] + self._ends)
        self._kept, self._ends = [], []

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


def _is_refused(ends: list[RunEnd], error: Exception) -> bool:
    """Whether one of these was not accepted: its result, or a follow-up that is wrong or not permitted."""
    forbidden = isinstance(error, NotPermitted) and any(end.follow_ups for end in ends)
    return forbidden or blames_data(error)


def _halves(ends: list[RunEnd]) -> list[list[RunEnd]]:
    middle = (len(ends) + 1) // 2
    return [ends[:middle], ends[middle:]]


def _ended(outcome: Outcome, end: RunEnd, state: State | None) -> RunEnded:
    if state is State.CANCELLED:
        outcome = Outcome.CANCELLED
    if state is None:
        waits = State.SCHEDULED if end.delay else State.READY
        state = State.SUCCEEDED if outcome is Outcome.SUCCEEDED else waits
    if end.error is None:
        return RunEnded(end.job, outcome, state, end.ran)
    error, _, trace = end.error.partition("\n")
    return RunEnded(end.job, outcome, state, end.ran, error, trace or None)
