"""Findings of the doctor: read now and then for all users together, with a link to the page that shows more."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from dibs.errors import ServerError
from dibs.info import SEVERITIES

if TYPE_CHECKING:
    from dibs.client.bounded import BoundedClient
    from dibs.info import Finding

KEPT = 3
"""Findings are kept for this many polls of an open page."""

# The checks by the page of their findings.
QUEUES = {"paused", "expiring", "past-ttl", "lost-lease", "no-worker", "unknown-kind", "backlog"}
SCHEDULES = {"schedule-failing", "schedule-late"}
WORKERS = {"clock", "lost-worker"}
DEAD = {"dead-jobs"}
LIMITS = {"closed-limit", "lost-unit"}


class Findings:
    """The latest findings of the doctor."""

    def __init__(self, client: BoundedClient, poll: float) -> None:
        self._client = client
        self._kept = KEPT * poll
        self._asking = asyncio.Lock()
        self._found: list[Finding] = []
        self._failure: ServerError | None = None
        self._until = 0.0

    async def now(self) -> list[Finding]:
        """Return the findings, worst first; of equal severity, those with a page first.

        A failure is kept, too: if the doctor takes too long, the users do not wait for it one after the other.
        """
        async with self._asking:
            if time.monotonic() >= self._until:
                await self._ask()
                self._until = time.monotonic() + self._kept
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        return self._found

    async def _ask(self) -> None:
        try:
            found = await self._client.doctor()
        except ServerError as error:
            self._failure = error
        else:
            self._found = sorted(found, key=lambda f: (SEVERITIES.index(f.level), page_of(f)[0] == "doctor"))
            self._failure = None


def page_of(finding: Finding) -> tuple[str, dict[str, str]]:
    """Return the page that shows more of a finding, and its query."""
    about = finding.subject or ""
    if finding.name in DEAD:
        return "jobs", {"queue": about, "state": "dead"}
    if finding.name in QUEUES:
        return "queue", {"name": about}
    if finding.name in SCHEDULES:
        return "schedule", {"name": about}
    if finding.name in WORKERS:
        return "workers", {}
    if finding.name in LIMITS and about.startswith("queue "):
        return "queue", {"name": about.removeprefix("queue ")}
    return "doctor", {}
