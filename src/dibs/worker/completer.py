"""Sends outcomes back, in batches: what gathered while the last batch was on its way goes with the next."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from dibs.db import calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from dibs.db.calls import Call
    from dibs.db.database_async import AsyncDatabase
    from dibs.job import Answer, Claimed
    from dibs.worker.report import Report

log = logging.getLogger("dibs.worker")
BATCH = 500


class Completer:
    """Collects reports and sends them."""

    def __init__(self, database: AsyncDatabase, done: Callable[[int], None]) -> None:
        self._database = database
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
            try:
                await self._send(batch)
            except Exception:
                # The leases run out and the jobs are run again: nothing is lost, but somebody should know.
                log.exception("%d outcomes could not be sent", len(batch))
            self._done(len(batch))

    async def _send(self, batch: list[Report]) -> None:
        for verb in ("complete", "fail", "snooze", "release"):
            reports = [r for r in batch if r.verb == verb]
            if reports:
                for report, answer in zip(reports, await self._answers(verb, reports), strict=True):
                    if answer == "lost":
                        log.warning("job %s was no longer ours to %s", report.job.id, verb)

    async def _answers(self, verb: str, reports: list[Report]) -> list[str]:
        held = [r.job for r in reports]
        delays = [r.delay for r in reports]
        if verb == "fail":
            call = calls.fail_many(held, [r.error for r in reports], [r.final for r in reports], delays)
            return [f.answer for f in await self._database.run(call)]
        if verb == "complete":
            answers = await self._database.run(_completion(held, reports))
        elif verb == "snooze":
            answers = await self._database.run(calls.snooze_many(held, [d or 0.0 for d in delays]))
        else:
            answers = await self._database.run(calls.release_many(held, delays))
        return [a.answer for a in answers]


def _completion(held: list[Claimed], reports: list[Report]) -> Call[list[Answer]]:
    results = [r.result for r in reports] if any(r.result is not None for r in reports) else None
    following = any(r.follow_ups for r in reports)
    follow_ups = [[j.as_json(j.id, inline=True) for j in r.follow_ups] for r in reports] if following else None
    return calls.complete_many(held, results, follow_ups)
