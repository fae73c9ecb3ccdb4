"""Text messages over Twilio's Messages API, which other services speak as well."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from dibs.channels.http import Http, HttpAnswer, judge, retry_after
from dibs.channels.messages import Sms, read
from dibs.channels.provider import NotSent, Refusal, Throttled

if TYPE_CHECKING:
    from dibs.channels.environment import Environment

TOO_FAST = {20429, 14107, 30001, 63018}
"""Twilio's codes for "too much at once"."""
OVERRULED = {20003, 20404, 21606, 21660}
"""Codes about our account, our sender and our address: not the message's fault."""


class Twilio:
    """Sends text messages to an account of the service."""

    name = "twilio"

    def __init__(self, environment: Environment) -> None:
        account = environment.need("DIBS_SMS_ACCOUNT", "sending text messages")
        token = environment.secret("DIBS_SMS_TOKEN", "sending text messages") or ""
        base = environment.get("DIBS_SMS_URL", "https://api.twilio.com") or ""
        self._sender = environment.get("DIBS_SMS_FROM")
        self._http = Http(
            f"{base.rstrip('/')}/2010-04-01/Accounts/{quote(account, safe='')}/Messages.json",
            environment.number("DIBS_SMS_TIMEOUT", 30),
            called="DIBS_SMS_URL",
            carries_secret=True,
        )
        proof = b64encode(f"{account}:{token}".encode()).decode()
        self._headers = {
            "Authorization": f"Basic {proof}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }

    async def send(self, message: dict[str, Any], key: str) -> dict[str, Any]:
        """Send one text message."""
        sms = read(message, Sms)
        sender = sms.sender or self._sender
        if sender is None:
            raise Refusal("the message has no sender: give it a from, or set DIBS_SMS_FROM")
        who = "MessagingServiceSid" if sender.startswith("MG") else "From"
        body = urlencode({"To": sms.to, who: sender, "Body": sms.text}).encode()
        answer = await self._http.send("POST", {**self._headers, "Idempotency-Key": key}, body)
        return _receipt(answer)

    async def close(self) -> None:
        """End the threads."""
        self._http.close()


def _receipt(answer: HttpAnswer) -> dict[str, Any]:
    said = answer.json()
    said = said if isinstance(said, dict) else {}
    code = said.get("code")
    code = code if isinstance(code, int | str) else None
    message = f"{said.get('message', '')} (code {code})" if code else None
    if code in TOO_FAST:
        raise Throttled(message or "too many requests", retry_after(answer.headers.get("retry-after")))
    if code in OVERRULED:
        raise NotSent(message or "")
    judge(answer, message)
    return {"id": said.get("sid"), "status": said.get("status")}
