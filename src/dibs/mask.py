"""Covers secrets in values shown to people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

HIDDEN = "•••"
SECRET = ("payload", "headers", "body", "result", "progress")
"""The fields of a job or a run that may hold a secret."""


def read_keys(text: str) -> frozenset[str]:
    """The keys of a list with commas, in any case.

    >>> sorted(read_keys("password, Token"))
    ['password', 'token']
    """
    return frozenset(key.strip().casefold() for key in text.split(",") if key.strip())


def covered(value: Any, keys: Collection[str]) -> Any:
    """Return the value with the values of these keys covered, at any depth.

    A value that is nested too deeply is covered whole.

    >>> covered({"to": "ann", "Token": 7}, {"token"})
    {'to': 'ann', 'Token': '•••'}
    """
    try:
        return _covered(value, keys)
    except RecursionError:
        return HIDDEN


def cover_secrets(row: Mapping[str, Any], cover: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a job or a run with ``cover`` applied to every field that may hold a secret."""
    return {**row, **{name: cover(row[name]) for name in SECRET if name in row}}


def _covered(value: Any, keys: Collection[str]) -> Any:
    if isinstance(value, dict):
        return {name: HIDDEN if name.casefold() in keys else _covered(v, keys) for name, v in value.items()}
    if isinstance(value, list):
        return [_covered(v, keys) for v in value]
    return value
