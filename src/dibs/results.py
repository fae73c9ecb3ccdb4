"""A handler's result as JSON can hold it."""

from __future__ import annotations

from typing import Any

import msgspec

from dibs.errors import InvalidArgument


def result_of(value: Any) -> Any:
    """The result as JSON can hold it; what cannot be kept is refused."""
    if value is None or type(value) in {str, int, bool}:
        return value
    try:
        return msgspec.to_builtins(value, enc_hook=_encode)
    except (TypeError, RecursionError) as error:
        raise InvalidArgument(
            f"the result cannot be kept as JSON: {error}", hint="return what JSON can hold, or None"
        ) from error


def _encode(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} cannot be kept as JSON")
