"""A handler's result as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from dibs.errors import InvalidArgument, UnexpectedResult


def result_of(value: Any) -> Any:
    """Convert a result to a JSON value."""
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


def read_result(value: Any, kind: Any) -> Any:
    """Convert a kept result to the type that its task returns."""
    if value is None or kind is Any:
        return value
    try:
        return msgspec.convert(value, kind, strict=False, dec_hook=_decode)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise UnexpectedResult(
            f"the result is no {getattr(kind, '__name__', kind)}: {error}",
            hint="the task returned something else when it ran; client.job(id).result() reads it as it is",
        ) from error


def _decode(kind: type, value: Any) -> Any:
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    raise TypeError(f"{kind.__name__} cannot be read from JSON")
