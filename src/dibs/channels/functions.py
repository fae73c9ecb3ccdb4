"""Runs functions of the database. A failure is one of three errors."""

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
AWAY = 5.0
"""Seconds that a job waits, uncharged, when its database goes away."""


class Failed(Exception):
    """An operational error: it is in the error log, and the job is retried by its policy."""


class Invalid(Exception):
    """The function says that this job can never work; nothing is wrong with the worker."""


class Functions:
    """The functions of one database."""

    def __init__(self, database: AsyncDatabase, environment: Environment) -> None:
        self.database = database
        self._environment = environment

    async def run(self, job: Claimed, name: str, payload: Any) -> dict[str, Any]:
        """Run a function in a separate transaction, and return the content of its envelope."""
        return await self._call(job, name, calls.channels.run_function(name, payload))

    async def finish(self, here: Context, name: str, payload: Any) -> dict[str, Any]:
        """Run a function in a transaction that also completes the job, so that its writes happen exactly once."""
        return await self._complete(here, name, calls.channels.run_job(here.job, name, payload))

    async def tell_success(self, here: Context, name: str, payload: Any, result: Any) -> None:
        """Tell a handler that a message was accepted, in the transaction that completes the job."""
        await self._complete(here, name, calls.channels.run_handler(here.job, name, payload, True, result))

    async def tell_error(self, here: Context, name: str, payload: Any) -> None:
        """Tell a handler that a message was not sent; the job fails afterwards."""
        await self._call(here.job, name, calls.channels.run_handler(here.job, name, payload, False, None))

    async def _complete(self, here: Context, name: str, call: Call[dict[str, Any]]) -> dict[str, Any]:
        try:
            found = await self._call(here.job, name, call)
        except LeaseLost:
            here.completed = True  # by an answer that got lost, or it is no longer ours: nothing is left to report
            raise
        here.completed = True
        return found

    async def _call(self, job: Claimed, name: str, call: Call[dict[str, Any]]) -> dict[str, Any]:
        try:
            _, envelope = await self.database.run_together([calls.channels.begin_function(name), call])
        except ConnectionLost:
            raise Snooze(AWAY) from None
        except LeaseLost:
            raise
        except BrokenContract as error:
            await self.note(error.message, job.id, name)
            raise Invalid(error.message) from None
        except DibsError as error:
            raise await self.failed(f"{name}: {error.message}", job.id, name) from None
        if envelope["validation_failure_message"]:
            raise Invalid(f"{name}: {envelope['validation_failure_message']}")
        if envelope["error"]:
            raise await self.failed(f"{name}: {envelope['error']}", job.id, name)
        found: dict[str, Any] = envelope["payload"]
        return found

    async def failed(self, message: str, job: UUID, source: str) -> Failed:
        """Write an operational error into the log, and return it to be raised."""
        await self.note(message, job, source)
        return Failed(self._environment.scrub(message))

    async def note(self, message: str, job: UUID, source: str) -> None:
        """Write into the error log. If that fails, go on."""
        text = self._environment.scrub(message)
        log.warning("job %s: %s", job, text)
        with contextlib.suppress(DibsError):
            await self.database.run(calls.channels.append_error(text, job, source[:200]))
