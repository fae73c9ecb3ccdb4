"""Messages to any service behind HTTP, by a template."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec

from dibs.channels.http import Http, judge
from dibs.channels.messages import read
from dibs.errors import InvalidArgument

if TYPE_CHECKING:
    from dibs.channels.environment import Environment
    from dibs.channels.messages import Email, Sms

_PLACE = re.compile(r"\{(\w+)\}")


class Template(msgspec.Struct, forbid_unknown_fields=True):
    """A template of requests.

    ``{name}`` stands for a field of the message, ``{key}`` for the idempotency key, and ``{message}`` for the whole
    message. ``${NAME}`` in the address and the headers stands for a variable of the environment.
    """

    url: str
    method: str = "POST"
    headers: dict[str, str] = {}
    body: Any = "{message}"
    form: bool = False
    id: str | None = None


class Webhook:
    """Sends each message as one request."""

    name = "webhook"

    def __init__(self, environment: Environment, setting: str, shape: type[Email | Sms]) -> None:
        template = _read(environment.need(setting, "the webhook"), setting)
        self._shape = shape
        self._template = template
        url = environment.expand(template.url, setting)
        self._http = Http(
            url,
            environment.number(f"{setting}_TIMEOUT", 30),
            called=f"the url of {setting}",
            carries_secret=bool(template.headers) or url != template.url,
        )
        kind = "application/x-www-form-urlencoded" if template.form else "application/json"
        given = {name: environment.expand(value, setting) for name, value in template.headers.items()}
        self._headers = _replaced({"Content-Type": kind, "Accept": "application/json"}, given)

    async def send(self, message: dict[str, Any], key: str) -> dict[str, Any]:
        """Send one message."""
        read(message, self._shape)
        values = {**message, "key": key, "message": message}
        filled = fill(self._template.body, values)
        if self._template.form:
            body = urlencode({name: value for name, value in filled.items() if value is not None}).encode()
        else:
            body = msgspec.json.encode(filled)
        headers = _replaced(self._headers, {"Idempotency-Key": key})
        answer = await self._http.send(self._template.method, headers, body)
        judge(answer)
        return {"id": at_pointer(answer.json(), self._template.id), "status": answer.status}

    async def close(self) -> None:
        """End the threads."""
        self._http.close()


def _read(text: str, setting: str) -> Template:
    try:
        template = msgspec.json.decode(text, type=Template)
    except msgspec.DecodeError as error:
        raise InvalidArgument(
            f"{setting} is not a template: {error}",
            hint='write {"url": "https://…", "headers": {"Authorization": "Bearer ${TOKEN}"}, "body": {"to": "{to}"}}',
        ) from None
    if template.form and not isinstance(template.body, dict):
        raise InvalidArgument(f"{setting} sends a form, so its body must be an object")
    return template


def _replaced(headers: dict[str, str], newer: dict[str, str]) -> dict[str, str]:
    """Return the headers with newer ones, which replace those of the same name, in upper or lower case."""
    names = {name.lower() for name in newer}
    return {name: value for name, value in headers.items() if name.lower() not in names} | newer


def fill(template: Any, values: dict[str, Any]) -> Any:
    """Fill a template with values. A text that is one placeholder only becomes the value itself.

    >>> fill({"to": ["{to}"], "text": "Hello {to}"}, {"to": "Ann"})
    {'to': ['Ann'], 'text': 'Hello Ann'}
    """
    if isinstance(template, dict):
        return {name: fill(value, values) for name, value in template.items()}
    if isinstance(template, list):
        return [fill(value, values) for value in template]
    if not isinstance(template, str):
        return template
    if whole := _PLACE.fullmatch(template):
        return values.get(whole[1])
    return _PLACE.sub(lambda found: _as_text(values.get(found[1])), template)


def _as_text(value: Any) -> str:
    return "" if value is None else str(value)


def at_pointer(answer: Any, pointer: str | None) -> Any:
    """Return the value at a pointer such as ``/data/id`` in an answer; None if there is none."""
    if not pointer:
        return None
    value = answer
    for step in pointer.strip("/").split("/"):
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value
