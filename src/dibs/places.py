"""Locates the unfit part of a value, for error messages."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEEPEST = 50
"""The greatest depth to look at: a value may hold itself."""


def place_of(value: Any, is_unfit: Callable[[Any], bool], root: str = "$") -> tuple[str, Any]:
    """Return the place of the innermost unfit part, such as ``$.lines[2].amount``, and the part.

    >>> place_of({"lines": [1, {"amount": None}]}, lambda part: "None" in repr(part))
    ('$.lines[1].amount', None)
    """
    place, part = root, value
    for _ in range(DEEPEST):
        inner = next(((step, child) for step, child in children(part) if is_unfit(child)), None)
        if inner is None:
            break
        place, part = place + inner[0], inner[1]
    return place, part


def children(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the place and the value of each part of a value."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]", child
    elif isinstance(value, list | tuple | set | frozenset):
        for n, child in enumerate(value):
            yield f"[{n}]", child
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield f".{name}", getattr(value, name)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield f".{field.name}", getattr(value, field.name, None)
