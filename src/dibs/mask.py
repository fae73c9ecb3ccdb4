"""Covering secrets in what people look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

HIDDEN = "•••"
SECRET = ("payload", "headers", "body", "result", "progress")
"""What of a job or a run may hold a secret."""


def read_keys(text: str) -> frozenset[str]:
    """The keys of a list with commas, in any case.

    >>> sorted(read_keys("password, Token"))
    ['password', 'token']
    """
    return frozenset(key.strip().casefold() for key in text.split(",") if key.strip())


def covered(value: Any, keys: Collection[str]) -> Any:
    """The value with what stands under these keys covered, at any depth.

    What is nested too deeply to be looked through is covered whole.

    >>> covered({"to": "ann", "Token": 7}, {"token"})
    {'to': 'ann', 'Token': '•••'}
    """
    try:
        return _covered(value, keys)
    except RecursionError:
        return HIDDEN


def cover_secrets(row: Mapping[str, Any], cover: Callable[[Any], Any]) -> dict[str, Any]:
    """A job or a run with ``cover`` applied to all in it that may hold a secret."""
    return {**row, **{name: cover(row[name]) for name in SECRET if name in row}}


def _covered(value: Any, keys: Collection[str]) -> Any:
    if isinstance(value, dict):
        return {name: HIDDEN if name.casefold() in keys else _covered(v, keys) for name, v in value.items()}
    if isinstance(value, list):
        return [_covered(v, keys) for v in value]
    return value
