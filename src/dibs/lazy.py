"""A list whose items are made on access, for answers about very many jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

T_co = TypeVar("T_co", covariant=True)


class LazyList(Sequence[T_co]):
    """A list of ``length`` items; ``make`` makes the item at an index."""

    def __init__(self, length: int, make: Callable[[int], T_co]) -> None:
        self._places = range(length)
        self._make = make

    @overload
    def __getitem__(self, place: int) -> T_co: ...

    @overload
    def __getitem__(self, place: slice) -> list[T_co]: ...

    def __getitem__(self, place: int | slice) -> T_co | list[T_co]:
        if isinstance(place, slice):
            return [self._make(n) for n in self._places[place]]
        return self._make(self._places[place])

    def __len__(self) -> int:
        return len(self._places)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__: Any = None

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:5]))
        return f"[{shown}{', …' if len(self) > len(self[:5]) else ''}]"
