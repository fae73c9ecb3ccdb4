"""One message from its job to its provider and back to its handlers.

Each step is a separate transaction, recorded before the next step begins: a run that starts again continues after the
last recorded step, and sends nothing twice. The one gap is between the provider's answer and its record. If a run ends
there, the next run sees it, reports it and counts it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from dibs.channels.functions import AWAY, Failed, Invalid
from dibs.channels.provider import NotSent, Refusal, Throttled
from dibs.client.context import context
from dibs.db import calls
from dibs.errors import ConnectionLost, Refused, ServerError
from dibs.retry import GiveUp, Snooze

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from dibs.channels.environment import Environment
    from dibs.channels.functions import Functions
    from dibs.channels.provider import Provider
    from dibs.client.context import Context
    from dibs.db.calls.channels import Stage
    from dibs.job import Claimed

log = logging.getLogger("dibs.channels")

SETTLED = {"accepted", "refused", "done"}
FRESH = calls.channels.Stage("none", None)
WAIT = 30.0
"""Seconds that a throttled message waits if the provider names no time."""
TOLD = 500
"""The number of characters kept of a provider's error."""
LONGEST = 60.0
"""Seconds after which an outcome is reported to its handler again, at most."""


class Order(msgspec.Struct):
    """The fields of a payload that are for the channel; all others are for the handlers."""

    task_type: str | None = None
    message: dict[str, Any] | None = None
    before_handler: str | None = None
    success_handler: str | None = None
    error_handler: str | None = None
    on_error: str = "retry"

    @property
    def handlers(self) -> list[str]:
        """The handlers that learn the outcome."""
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
        here = context()
        job = here.job
        order = self._read(payload)
        try:
            stage = FRESH if job.run == 1 else await self._database.run(calls.channels.delivery_stage(job.id))
            if stage.stage not in SETTLED:
                stage = await self._send(job, order, payload)
        except ConnectionLost:
            raise Snooze(AWAY) from None
        return await self._settle(here, order, payload, stage)

    async def close(self) -> None:
        """Finish the recording under way, and close the provider."""
        await asyncio.gather(*self._recording, return_exceptions=True)
        await self.provider.close()

    def _read(self, payload: Any) -> Order:
        try:
            order = msgspec.convert(payload, Order)
        except msgspec.ValidationError as error:
            raise GiveUp(f"the payload is not one of kind {self.kind}: {error}") from None
        if order.task_type not in {None, self.kind}:
            raise GiveUp(f"the payload says task_type {order.task_type!r}, and the job is of kind {self.kind!r}")
        if (order.message is None) == (order.before_handler is None):
            raise GiveUp("the payload needs either a message or a before_handler that makes one")
        if order.on_error not in {"retry", "report"}:
            raise GiveUp(f"on_error is retry or report, not {order.on_error!r}")
        return order

    # Sending

    async def _send(self, job: Claimed, order: Order, payload: Any) -> Stage:
        """Make the message and send it. Return the result for the job."""
        try:
            message = order.message
            if order.before_handler is not None:
                message = await self._functions.run(job, order.before_handler, payload)
        except Invalid as error:
            return await self._refuse(job, order, str(error))
        begun = await self._database.run(calls.channels.begin_delivery(job, self.provider.name, order.handlers))
        if begun.stage in SETTLED:
            return begun
        if begun.stage == "sending":
            text = f"an earlier send through {self.provider.name} was interrupted: the message may go out twice"
            await self._functions.note(text, job.id, self.kind)
        return await self._hand_over(job, order, message or {})

    async def _hand_over(self, job: Claimed, order: Order, message: dict[str, Any]) -> Stage:
        try:
            receipt = await self.provider.send(message, str(job.id))
        except Refusal as error:
            return await self._refuse(job, order, self._in_words(error))
        except Throttled as error:
            await self._record(job, "failed", {"error": self._in_words(error), "throttled": True})
            raise Snooze(error.after or WAIT) from None
        except NotSent as error:
            return await self._not_sent(job, order, self._in_words(error))
        except Exception as error:
            return await self._unknown(job, order, self._in_words(error))
        return await self._accept(job, receipt)

    async def _accept(self, job: Claimed, receipt: dict[str, Any]) -> Stage:
        """Record that the message went out. A receipt that cannot be stored must not cause another send."""
        name = self.provider.name
        try:
            detail = {"provider": name, **self._environment.scrub(receipt)}
            await self._record(job, "accepted", detail)
        except (Refused, ServerError, TypeError, RecursionError) as error:
            detail = {"provider": name, "note": f"the receipt could not be kept: {self._in_words(error)}"}
            await self._record(job, "accepted", detail)
        return calls.channels.Stage("accepted", detail)

    async def _not_sent(self, job: Claimed, order: Order, text: str) -> Stage:
        if order.on_error == "report" or job.is_last_attempt:
            return await self._refuse(job, order, text)
        await self._record(job, "failed", {"error": text})
        raise await self._functions.failed(text, job.id, self.kind) from None

    async def _unknown(self, job: Claimed, order: Order, text: str) -> Stage:
        """Leave the send marked as begun, for the next run to see: it is unknown whether the message went out."""
        text = f"it is not known whether the message went out: {text}"
        if job.is_last_attempt:
            return await self._refuse(job, order, text, unknown=True)
        raise await self._functions.failed(text, job.id, self.kind) from None

    async def _refuse(self, job: Claimed, order: Order, text: str, *, unknown: bool = False) -> Stage:
        """Record that the message is not sent, as the outcome; without an error handler it is only an error."""
        detail: dict[str, Any] = {"error": text, **({"unknown": True} if unknown else {})}
        await self._record(job, "refused" if order.error_handler else "failed", detail)
        if order.error_handler is None:
            raise GiveUp(text)
        return calls.channels.Stage("refused", detail)

    def _in_words(self, error: Exception) -> str:
        # Remove secrets before cutting: most of a secret that is cut in two would stay.
        return self._environment.scrub(str(error) or type(error).__name__)[:TOLD]

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

    # Telling the handlers

    async def _settle(self, here: Context, order: Order, payload: Any, stage: Stage) -> Any:
        if stage.stage == "accepted" and order.success_handler is not None:
            envelope = {"original_payload": payload, "worker_payload": stage.detail or {}}
            telling = self._functions.tell_success(here, order.success_handler, envelope, stage.detail)
            await self._tell(here, order.success_handler, telling)
        if stage.stage == "refused":
            error = str((stage.detail or {}).get("error", "refused"))
            if order.error_handler is not None:
                envelope = {"original_payload": payload, "error": error}
                telling = self._functions.tell_error(here, order.error_handler, envelope)
                await self._tell(here, order.error_handler, telling)
            raise GiveUp(error)
        return stage.detail

    async def _tell(self, here: Context, handler: str, telling: Awaitable[None]) -> None:
        """Call a handler. If that fails, snooze the job, uncharged, so that it is called again until it succeeds."""
        try:
            await telling
        except Invalid as error:
            await self._functions.note(str(error), here.id, handler)
            raise GiveUp(str(error)) from None
        except Failed:
            raise Snooze(min(2.0 ** min(here.job.run - 1, 10), LONGEST)) from None
