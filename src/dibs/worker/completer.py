"""Sends outcomes back, in batches: what gathered while the last batch was on its way goes with the next."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from dibs.db import calls
from dibs.errors import ConnectionLost
from dibs.events import OutcomesSent, RunEnded, RunLost, Trouble
from dibs.runtime.points import reach
from dibs.states import Answer, Outcome, State
from dibs.worker.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dibs.db.calls import Call
    from dibs.db.database_async import AsyncDatabase
    from dibs.events import Events
    from dibs.job import Claimed

BATCH = 500
VERBS = ("complete", "fail", "snooze", "release", "none")
OUTCOMES = {
    "complete": Outcome.SUCCEEDED,
    "fail": Outcome.FAILED,
    "snooze": Outcome.SNOOZED,
    "release": Outcome.RELEASED,
    "none": Outcome.SUCCEEDED,
}


class Completer:
    """Collects reports and sends them."""

    def __init__(self, database: AsyncDatabase, events: Events, done: Callable[[Sequence[Report]], None]) -> None:
        self._database = database
        self._events = events
        self._done = done
        self._reports: list[Report] = []
        self._more = asyncio.Event()
        self._ending = False

    def add(self, report: Report) -> None:
        """Take a report in."""
        self._reports.append(report)
        self._more.set()

    async def run(self) -> None:
        """Send reports until told to end, and then those that are left."""
        while self._reports or not self._ending:
            await self._more.wait()
            self._more.clear()
            await self._flush()

    def end(self) -> None:
        """Let ``run`` return when everything is sent. Cancelled, it would forget a batch that is under way."""
        self._ending = True
        self._more.set()

    async def _flush(self) -> None:
        while self._reports:
            batch, self._reports = self._reports[:BATCH], self._reports[BATCH:]
            for verb in VERBS:
                reports = [r for r in batch if r.verb == verb]
                if reports:
                    await self._send(verb, reports)
            self._done(batch)

    async def _send(self, verb: str, reports: list[Report]) -> None:
        """Send them, through outages: as long as the leases last, there is somebody to send to."""
        while True:
            try:
                return await self._try(verb, reports)
            except ConnectionLost as error:
                self._events.tell(Trouble(f"sending outcomes ({verb})", error))
                reports = [r for r in reports if not self._is_too_late(r)]
                if not reports:
                    return None
            except Exception as error:
                return await self._send_apart(verb, reports, error)

    def _is_too_late(self, report: Report) -> bool:
        late = self._ending or report.is_too_late
        if late:
            self._events.tell(RunLost(report.job))  # It runs out, and the job is run again.
        return late

    async def _send_apart(self, verb: str, reports: list[Report], error: Exception) -> None:
        """One outcome that is refused must not spoil the others: halve the batch until it stands alone."""
        self._events.tell(Trouble(f"sending outcomes ({verb})", error))
        if len(reports) > 1:
            middle = len(reports) // 2
            await self._send(verb, reports[:middle])
            await self._send(verb, reports[middle:])
        elif verb == "complete":
            refused = Report(reports[0].job, "fail", error=f"the completion was refused: {error}", final=True)
            await self._send("fail", [refused])
        else:
            self._events.tell(RunLost(reports[0].job))

    async def _try(self, verb: str, reports: list[Report]) -> None:
        began = time.monotonic()
        reach("completer.before_send")
        answers = await self._answers(verb, reports)
        reach("completer.after_send")
        if self._events.wants(OutcomesSent):
            self._events.tell(OutcomesSent(verb, len(reports), time.monotonic() - began))
        self._tell(verb, reports, answers)

    async def _answers(self, verb: str, reports: list[Report]) -> list[tuple[Answer, State | None]]:
        """For each report the answer, and the job's state now where the answer tells it."""
        held = [r.job for r in reports]
        delays = [r.delay for r in reports]
        if verb == "none":
            return [(Answer.OK, None)] * len(reports)
        if verb == "fail":
            call = calls.fail_many(held, [r.error for r in reports], [r.final for r in reports], delays)
            return [(f.answer, f.state) for f in await self._database.run(call)]
        if verb == "complete":
            return [(answer, None) for answer in await self._database.run(_completion(held, reports))]
        if verb == "snooze":
            answers = await self._database.run(calls.snooze_many(held, [d or 0.0 for d in delays]))
        else:
            answers = await self._database.run(calls.release_many(held, delays))
        return [(a.answer, None) for a in answers]

    def _tell(self, verb: str, reports: list[Report], answers: list[tuple[Answer, State | None]]) -> None:
        wants = self._events.wants(RunEnded)
        for report, (answer, state) in zip(reports, answers, strict=True):
            if answer is Answer.LOST:
                self._events.tell(RunLost(report.job))
            elif wants:
                self._events.tell(_ended(verb, report, state))


def _ended(verb: str, report: Report, state: State | None) -> RunEnded:
    outcome = Outcome.CANCELLED if state is State.CANCELLED else OUTCOMES[verb]
    if state is None:
        waits = State.SCHEDULED if report.delay else State.READY
        state = State.SUCCEEDED if outcome is Outcome.SUCCEEDED else waits
    error = report.error.partition("\n")[0] if report.error else None
    return RunEnded(report.job, outcome, state, report.ran, error)


def _completion(held: list[Claimed], reports: list[Report]) -> Call[list[Answer]]:
    results = [r.result for r in reports] if any(r.result is not None for r in reports) else None
    follow_ups = [r.follow_ups for r in reports] if any(r.follow_ups for r in reports) else None
    return calls.complete_many(held, results, follow_ups)
