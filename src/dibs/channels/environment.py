"""Where settings and secrets come from: the environment. What is secret is remembered, to be struck out of texts."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, TypeVar

from dibs.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")
STRUCK = "***"
SHORTEST = 4
"""A shorter secret is no secret, and striking it out would spoil every text."""
_REFERENCE = re.compile(r"\$\{(\w+)\}")


class Environment:
    """The environment's variables, and which of them must never be shown."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(os.environ if values is None else values)
        self._secrets: set[str] = set()

    def __repr__(self) -> str:
        return f"Environment({len(self._values)} variables)"

    def get(self, name: str, default: str | None = None) -> str | None:
        """A setting, or what it is without one; an empty one is none."""
        return self._values.get(name) or default

    def need(self, name: str, why: str) -> str:
        """A setting that must be there."""
        found = self.get(name)
        if found is None:
            raise InvalidArgument(f"{name} is not set, and {why} needs it", hint=f"set {name} in the environment")
        return found

    def number(self, name: str, default: float) -> float:
        """A setting that is a number above zero."""
        text = self.get(name)
        try:
            found = default if text is None else float(text)
        except ValueError:
            found = 0.0
        if not found > 0:
            raise InvalidArgument(f"{name} is a number above zero, not {text!r}")
        return found

    def secret(self, name: str, why: str | None = None) -> str | None:
        """A setting that is never to be shown; needed, if there is a ``why``."""
        found = self.get(name) if why is None else self.need(name, why)
        if found is not None:
            self.hide(found)
        return found

    def hide(self, value: str) -> None:
        """Strike this text out of whatever is shown from now on."""
        if len(value) >= SHORTEST:
            self._secrets.add(value)

    def expand(self, text: str, why: str) -> str:
        """A text with ``${NAME}`` replaced from the environment; what was put in is secret."""
        return _REFERENCE.sub(lambda found: self.secret(found[1], why) or "", text)

    def scrub(self, value: T) -> T:
        """A text, or a JSON value with texts in it, without any secret."""
        return self._scrub(value)  # type: ignore[no-any-return]

    def _scrub(self, value: Any) -> Any:
        if isinstance(value, str):
            for secret in sorted(self._secrets, key=len, reverse=True):
                value = value.replace(secret, STRUCK)
            return value
        if isinstance(value, dict):
            return {self._scrub(k): self._scrub(v) for k, v in value.items()}
        return [self._scrub(v) for v in value] if isinstance(value, list) else value
