"""The schedules an app declares in its code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dibs.errors import InvalidArgument, InvalidSchedule
from dibs.schedule import RULES, Declared, ScheduleRule, rule_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from dibs.job import NewJob


class Schedulable(Protocol):
    """A task, as far as schedules need one: it has a name, and makes a job of a call."""

    name: str

    def call(self, *args: Any, **kwargs: Any) -> NewJob:
        """The call as a job."""


T = TypeVar("T", bound=Schedulable)


class Schedules:
    """The schedules that an app declares. ``app`` is its name, by default the module that makes this object."""

    def __init__(self, app: str | None = None) -> None:
        self.app = app or _calling_module()
        self._declared: dict[str, Declared] = {}

    def __iter__(self) -> Iterator[Declared]:
        return iter(self._declared.values())

    def __len__(self) -> int:
        return len(self._declared)

    def decorator(
        self,
        rule: ScheduleRule,
        *,
        name: str | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        as_task: Callable[[Any], T],
    ) -> Callable[[Any], T]:
        """Return a decorator that declares a task. It makes a plain function a task first."""
        _check_names(rule)
        if sum(key in rule for key in RULES) != 1:
            raise InvalidSchedule("a schedule has one rule", hint=f"give one of {', '.join(RULES)}")
        rule_as_json = rule_json(rule)

        def declare(decorated: Any) -> T:
            task: T = decorated if hasattr(decorated, "call") else as_task(decorated)
            label = name or task.name
            if label in self._declared:
                raise InvalidArgument(f"there is a schedule {label} already", hint="give one of them another name=")
            self._declared[label] = Declared(label, rule_as_json, task.call(*args, **(kwargs or {})))
            return task

        return declare


def _check_names(rule: ScheduleRule) -> None:
    known = ScheduleRule.__annotations__
    for name in rule.keys() - known.keys():
        from difflib import get_close_matches

        near = get_close_matches(name, [*known, "name", "args", "kwargs"], 1)
        hint = f"did you mean {near[0]!r}?" if near else f"a schedule has {', '.join(sorted(known))}"
        raise InvalidArgument(f"a schedule has no option {name!r}", hint=hint)


def _calling_module() -> str:
    """The module outside this package that called us; for a script, the name of its file."""
    frame = sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == "dibs":
        frame = frame.f_back
    name = str(frame.f_globals.get("__name__", "app"))
    if name != "__main__":
        return name
    if (spec := frame.f_globals.get("__spec__")) is not None:  # Run by `python -m`: the name by which others import it.
        return str(spec.name).removesuffix(".__main__")
    return Path(str(frame.f_globals.get("__file__", "script"))).stem
