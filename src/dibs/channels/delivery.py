"""One message from its job to its provider and back to its handlers.

Each step is a separate transaction, recorded before the next step begins, so the next run continues after the last
recorded step and sends nothing twice. There is one gap: a run may end after the provider has taken the message and
before that is recorded. The next run sees this, writes it into the error log, and sends again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from dibs.channels.functions import DATABASE_GONE_WAIT, Failed, Invalid
from dibs.channels.provider import NotSent, Refusal, Throttled
from dibs.client.context import context
from dibs.db import calls
from dibs.errors import ConnectionLost, Refused, ServerError
from dibs.retry import GiveUp, Snooze

if TYPE_CHECKING:
    from dibs.channels.environment import Environment
    from dibs.channels.functions import Functions
    from dibs.channels.provider import Provider
    from dibs.client.context import Context
    from dibs.db.calls.channels import Stage
    from dibs.job import Claimed

log = logging.getLogger("dibs.channels")

SENT_OR_REFUSED = {"accepted", "refused", "done"}
"""Stages after the provider has answered. An accepted message is ``done`` when its handler has run."""
NOTHING_SENT = calls.channels.Stage("none", None)
THROTTLED_WAIT = 30.0
"""Seconds that a throttled message waits if the provider names no time."""
ERROR_LENGTH = 500
"""The number of characters kept of a provider's error."""
LONGEST_HANDLER_WAIT = 60.0
"""The longest wait in seconds before a handler that failed is called again."""
UNSTORABLE = (Refused, ServerError, TypeError, RecursionError)
"""The errors of a receipt that is no mapping or no JSON, is nested too deeply, or that the database refuses."""


class DeliveryRequest(msgspec.Struct):
    """The fields of a payload that are for the channel; all others are for the handlers."""

    task_type: str | None = None
    message: dict[str, Any] | None = None
    before_handler: str | None = None
    success_handler: str | None = None
    error_handler: str | None = None
    on_error: str = "retry"

    @property
    def handlers(self) -> list[str]:
        """The handlers that are called with the outcome."""
        return [name for name in (self.success_handler, self.error_handler) if name is not None]


class Delivery:
    """Sends the messages of one channel."""

    def __init__(self, kind: str, provider: Provider, functions: Functions, environment: Environment) -> None:
        self.kind = kind
        self.provider = provider
        self._functions = functions
        self._database = functions.database
        self._environment = environment
        self._recording: set[asyncio.Task[None]] = set()

    async def run(self, payload: Any) -> Any:
        """Deliver the message of one job, from the last recorded step on."""
        ctx = context()
        job = ctx.job
        request = self._read(payload)
        try:
            stage = NOTHING_SENT if job.run == 1 else await self._database.run(calls.channels.delivery_stage(job.id))
            if stage.stage not in SENT_OR_REFUSED:
                stage = await self._send(job, request, payload)
        except ConnectionLost:
            raise Snooze(DATABASE_GONE_WAIT) from None
        return await self._settle(ctx, request, payload, stage)

    async def close(self) -> None:
        """Finish the recording under way, and close the provider."""
        await asyncio.gather(*self._recording, return_exceptions=True)
        await self.provider.close()

    def _read(self, payload: Any) -> DeliveryRequest:
        try:
            request = msgspec.convert(payload, DeliveryRequest)
        except msgspec.ValidationError as error:
            raise GiveUp(f"the payload is not one of kind {self.kind}: {error}") from None
        if request.task_type not in {None, self.kind}:
            raise GiveUp(f"the payload says task_type {request.task_type!r}, and the job is of kind {self.kind!r}")
        if (request.message is None) == (request.before_handler is None):
            raise GiveUp("the payload needs either a message or a before_handler that makes one")
        if request.on_error not in {"retry", "report"}:
            raise GiveUp(f"on_error is retry or report, not {request.on_error!r}")
        return request

    # Sending

    async def _send(self, job: Claimed, request: DeliveryRequest, payload: Any) -> Stage:
        """Make the message and send it, unless an earlier run has. Return the stage of the delivery after that."""
        try:
            message = request.message
            if request.before_handler is not None:
                message = await self._functions.run(job, request.before_handler, payload)
        except Failed as error:
            if not job.is_last_attempt:
                raise
            return await self._refuse(job, request, str(error))
        except Invalid as error:
            return await self._refuse(job, request, str(error))
        begun = await self._database.run(calls.channels.begin_delivery(job, self.provider.name, request.handlers))
        if begun.stage in SENT_OR_REFUSED:
            return begun
        if begun.stage == "sending":
            text = f"an earlier send through {self.provider.name} was interrupted: the message may go out twice"
            await self._functions.note(text, job.id, self.kind)
        return await self._hand_over(job, request, message or {})

    async def _hand_over(self, job: Claimed, request: DeliveryRequest, message: dict[str, Any]) -> Stage:
        try:
            receipt = await self.provider.send(message, str(job.id))
        except Refusal as error:
            return await self._refuse(job, request, self._in_words(error))
        except Throttled as error:
            await self._record(job, "failed", {"error": self._in_words(error), "throttled": True})
            raise Snooze(error.after or THROTTLED_WAIT) from None
        except NotSent as error:
            return await self._not_sent(job, request, self._in_words(error))
        except Exception as error:
            return await self._unknown(job, request, self._in_words(error))
        return await self._accept(job, receipt)

    async def _accept(self, job: Claimed, receipt: dict[str, Any]) -> Stage:
        """Record that the message went out. If the receipt cannot be stored, record the error in its place.

        If the connection is lost, nothing can be recorded: the step stays ``sending``, and the next run sends again.
        """
        name = self.provider.name
        try:
            detail = {"provider": name, **self._environment.scrub(receipt)}
            await self._record(job, "accepted", detail)
        except UNSTORABLE as error:
            detail = {"provider": name, "note": f"the receipt could not be kept: {self._in_words(error)}"}
            await self._record(job, "accepted", detail)
        return calls.channels.Stage("accepted", detail)

    async def _not_sent(self, job: Claimed, request: DeliveryRequest, text: str) -> Stage:
        if request.on_error == "report" or job.is_last_attempt:
            return await self._refuse(job, request, text)
        await self._record(job, "failed", {"error": text})
        raise await self._functions.log_failure(text, job.id, self.kind) from None

    async def _unknown(self, job: Claimed, request: DeliveryRequest, text: str) -> Stage:
        """Record nothing, so that the next run finds the step `sending`; in the last attempt record a refusal."""
        text = f"it is not known whether the message went out: {text}"
        if job.is_last_attempt:
            return await self._refuse(job, request, text, unknown=True)
        raise await self._functions.log_failure(text, job.id, self.kind) from None

    async def _refuse(self, job: Claimed, request: DeliveryRequest, text: str, *, unknown: bool = False) -> Stage:
        """Record that the message was refused, for the error handler.

        Without an error handler fail the job here, and record the step ``failed`` instead: if somebody retries the job
        by hand, the message is sent again.
        """
        detail: dict[str, Any] = {"error": text, **({"unknown": True} if unknown else {})}
        await self._record(job, "refused" if request.error_handler else "failed", detail)
        if request.error_handler is None:
            raise GiveUp(text)
        return calls.channels.Stage("refused", detail)

    def _in_words(self, error: Exception) -> str:
        # Remove secrets before cutting: most of a secret that is cut in two would stay.
        return self._environment.scrub(str(error) or type(error).__name__)[:ERROR_LENGTH]

    async def _record(self, job: Claimed, step: str, detail: dict[str, Any]) -> None:
        """Record the provider's answer, even if the lease is lost meanwhile: the answer is true nonetheless."""
        task = asyncio.create_task(self._database.run(calls.channels.record_delivery(job, step, detail)))
        self._recording.add(task)
        task.add_done_callback(self._recorded)
        await asyncio.shield(task)

    def _recorded(self, task: asyncio.Task[None]) -> None:
        self._recording.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("what a provider did could not be recorded: %s", error)

    # Calling the handlers

    async def _settle(self, ctx: Context, request: DeliveryRequest, payload: Any, stage: Stage) -> Any:
        """Call the handler of the outcome, which ends the job. Without one, return the result or fail the job."""
        detail = stage.detail or {}
        if stage.stage == "refused":
            error = str(detail.get("error", "refused"))
            if request.error_handler is not None:
                envelope = {"original_payload": payload, "error": error}
                await self._run_handler(ctx, request.error_handler, envelope, error=error)
            raise GiveUp(error)
        if stage.stage == "accepted" and request.success_handler is not None:
            envelope = {"original_payload": payload, "worker_payload": detail}
            await self._run_handler(ctx, request.success_handler, envelope, result=stage.detail)
        return stage.detail

    async def _run_handler(
        self, ctx: Context, handler: str, envelope: Any, *, result: Any = None, error: str | None = None
    ) -> None:
        """Run a handler. If it fails, snooze the job, uncharged: the handler is run again until it succeeds."""
        try:
            await self._functions.run_handler(ctx, handler, envelope, result=result, error=error)
        except Invalid as invalid:
            await self._functions.note(str(invalid), ctx.id, handler)
            raise GiveUp(str(invalid)) from None
        except Failed:
            raise Snooze(min(2.0 ** min(ctx.job.run - 1, 10), LONGEST_HANDLER_WAIT)) from None
