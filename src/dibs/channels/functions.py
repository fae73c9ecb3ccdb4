"""Runs functions of the database, for jobs and for handlers.

A call raises ``Failed``, ``Invalid``, ``Snooze`` if the connection is lost, or ``LeaseLost``.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

from dibs.db import calls
from dibs.errors import BrokenContract, ConnectionLost, DibsError, LeaseLost
from dibs.retry import Snooze

if TYPE_CHECKING:
    from uuid import UUID

    from dibs.channels.environment import Environment
    from dibs.client.context import Context
    from dibs.db.calls import Call
    from dibs.db.database_async import AsyncDatabase
    from dibs.job import Claimed

log = logging.getLogger("dibs.channels")
DATABASE_GONE_WAIT = 5.0
"""Seconds that a job waits, uncharged, when its database goes away."""


class Failed(Exception):
    """An operational error: it is in the error log, and the job is retried by its policy."""


class Invalid(Exception):
    """The function says that this job can never work, or it broke the contract of such functions."""


class Functions:
    """The functions of one database."""

    def __init__(self, database: AsyncDatabase, environment: Environment) -> None:
        self.database = database
        self._environment = environment

    async def run(self, job: Claimed, name: str, payload: Any) -> dict[str, Any]:
        """Run a function in a separate transaction, and return the payload of its envelope."""
        return await self._call(job, name, calls.channels.run_function(name, payload))

    async def run_job(self, ctx: Context, name: str, payload: Any) -> None:
        """Run a function in a transaction that also completes the job, so that its writes happen exactly once."""
        await self._end_job(ctx, name, calls.channels.run_job(ctx.job, name, payload))

    async def run_handler(self, ctx: Context, name: str, payload: Any, *, result: Any, error: str | None) -> None:
        """Run a handler in a transaction that also ends the job: as failed with an error, otherwise as succeeded."""
        call = calls.channels.run_handler(ctx.job, name, payload, result=result, error=error)
        await self._end_job(ctx, name, call, failed=error is not None)

    async def _end_job(self, ctx: Context, name: str, call: Call[dict[str, Any]], *, failed: bool = False) -> None:
        try:
            await self._call(ctx.job, name, call)
        except LeaseLost:
            # An earlier call has ended the job and its answer was lost, or another worker holds it: report nothing.
            ctx.completed, ctx._has_failed = True, failed
            raise
        ctx.completed, ctx._has_failed = True, failed

    async def _call(self, job: Claimed, name: str, call: Call[dict[str, Any]]) -> dict[str, Any]:
        try:
            _, envelope = await self.database.run_together([calls.channels.begin_function(name), call])
        except ConnectionLost:
            raise Snooze(DATABASE_GONE_WAIT) from None
        except LeaseLost:
            raise
        except BrokenContract as error:
            await self.note(error.message, job.id, name)
            raise Invalid(error.message) from None
        except DibsError as error:
            raise await self.log_failure(f"{name}: {error.message}", job.id, name) from None
        if envelope["validation_failure_message"]:
            raise Invalid(f"{name}: {envelope['validation_failure_message']}")
        if envelope["error"]:
            raise await self.log_failure(f"{name}: {envelope['error']}", job.id, name)
        payload: dict[str, Any] = envelope["payload"]
        return payload

    async def log_failure(self, message: str, job: UUID, source: str) -> Failed:
        """Write an operational error into the log, and return it to be raised."""
        await self.note(message, job, source)
        return Failed(self._environment.scrub(message))

    async def note(self, message: str, job: UUID, source: str) -> None:
        """Write into the error log. If that fails, go on."""
        text = self._environment.scrub(message)
        log.warning("job %s: %s", job, text)
        with contextlib.suppress(DibsError):
            await self.database.run(calls.channels.append_error(text, job, source[:200]))
