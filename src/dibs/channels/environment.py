"""Settings and secrets from the environment. Secrets are remembered, so that they can be struck out of texts."""

from __future__ import annotations

import html
import json
import math
import os
import re
from base64 import b64encode
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, quote_plus

from dibs.db.calls.call import clean
from dibs.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")
STRUCK = "***"
SHORTEST = 4
"""The length of the shortest secret: a shorter one would be struck out of every text."""
BITS_OF_LETTER = 6
"""The number of bits that one letter of base64 holds."""
_REFERENCE = re.compile(r"\$\{(\w+)\}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Environment:
    """The variables of the environment, and the secrets among them."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(os.environ if values is None else values)
        self._secrets: set[str] = set()

    def __repr__(self) -> str:
        return f"Environment({len(self._values)} variables)"

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return a setting, or the default if it is missing or empty."""
        return self._values.get(name) or default

    def need(self, name: str, why: str) -> str:
        """Return a required setting."""
        found = self.get(name)
        if found is None:
            raise InvalidArgument(f"{name} is not set, and {why} needs it", hint=f"set {name} in the environment")
        return found

    def number(self, name: str, default: float) -> float:
        """Return a setting that is a number above zero."""
        text = self.get(name)
        if text is None:
            return default
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not 0 < number < math.inf:  # False for nan.
            raise InvalidArgument(f"{name} is a number above zero, not {text!r}")
        return number

    def secret(self, name: str, why: str | None = None) -> str | None:
        """Return a setting that is a secret; with ``why`` it is required."""
        found = self.get(name) if why is None else self.need(name, why)
        if found is not None:
            if _CONTROL.search(found):
                raise InvalidArgument(
                    f"{name} has a line break or a control character in it", hint="was it read from a file, whole?"
                )
            self.hide(found)
        return found

    def hide(self, value: str) -> None:
        """Let :meth:`scrub` strike out this text from now on, unless it is too short for a secret."""
        if len(value) >= SHORTEST:
            self._secrets.add(value)
            self.__dict__.pop("_hidden", None)

    def expand(self, text: str, why: str) -> str:
        """Replace ``${NAME}`` in a text by the environment's value, which becomes a secret."""
        return _REFERENCE.sub(lambda found: self.secret(found[1], why) or "", text)

    def scrub(self, value: T) -> T:
        """Strike all secrets out of a text or a JSON value, and make its texts storable in a database."""
        return self._scrub(value)  # type: ignore[no-any-return]

    def _scrub(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._hidden.sub(STRUCK, clean(value)) if self._secrets else clean(value)
        if isinstance(value, dict):
            return {self._scrub(k): self._scrub(v) for k, v in value.items()}
        return [self._scrub(v) for v in value] if isinstance(value, list) else value

    @cached_property
    def _hidden(self) -> re.Pattern[str]:
        """A pattern of every form of every secret; the longest first, so that none is found inside another."""
        forms = sorted({form for secret in self._secrets for form in _forms(secret)}, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, forms)), re.IGNORECASE)


def _forms(secret: str) -> set[str]:
    """Return all forms of a secret: plain, or as part of JSON, of an address, of HTML or of base64."""
    in_json = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    in_json |= {form.replace("/", r"\/") for form in in_json}
    raw = secret.encode("utf-8", "surrogateescape")
    in_addresses = {quote(raw), quote(raw, safe=""), quote_plus(raw)}
    in_base64 = {_in_base64(raw, offset) for offset in range(3)}
    in_base64url = {form.replace("+", "-").replace("/", "_") for form in in_base64}
    return {secret, html.escape(secret), *in_json, *in_addresses, *in_base64, *in_base64url}


def _in_base64(secret: bytes, offset: int) -> str:
    """Return the letters that a secret has in the base64 of any longer text, without those it shares with other bytes.

    Base64 writes three bytes as four letters, so the letters of a secret depend on the place where it begins:
    ``offset`` is the number of bytes before it, modulo three.
    """
    letters = b64encode(bytes(offset) + secret).decode()
    first_bit = offset * 8
    end_bit = first_bit + len(secret) * 8
    return letters[math.ceil(first_bit / BITS_OF_LETTER) : end_bit // BITS_OF_LETTER]
