"""The types of an app's decorators, so that a task knows the type of its results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from dibs.client.task import AsyncTask, BatchTask, PlainTask, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
TaskT = TypeVar("TaskT", bound=Task[..., Any])


class Untold:
    """A type that no function returns. It matches only functions that return Any or Never, or say nothing."""


class TaskDecorator(Protocol):
    """Makes a function a task."""

    @overload
    def __call__(self, function: Callable[P, Untold], /) -> Task[P, Any]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...


class ScheduleDecorator(Protocol):
    """Leaves a task as it is, and makes a function a task."""

    @overload
    def __call__(self, function: TaskT, /) -> TaskT: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Callable[P, Untold], /) -> Task[P, Any]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...


class BatchDecorator(Protocol):
    """Makes a function that takes a list a task that takes one item.

    The function returns None, or an outcome for each item: its result, or the exception it would have raised.
    """

    @overload
    def __call__(
        self, function: Callable[[list[T]], Coroutine[Any, Any, None]], /
    ) -> BatchTask[T, None, Coroutine[Any, Any, None]]: ...

    @overload
    def __call__(
        self, function: Callable[[list[T]], Coroutine[Any, Any, Sequence[R | Exception]]], /
    ) -> BatchTask[T, R, Coroutine[Any, Any, Sequence[R | Exception]]]: ...

    @overload
    def __call__(
        self, function: Callable[[list[T]], Coroutine[Any, Any, Sequence[R | Exception] | None]], /
    ) -> BatchTask[T, R | None, Coroutine[Any, Any, Sequence[R | Exception] | None]]: ...

    @overload
    def __call__(self, function: Callable[[list[T]], None], /) -> BatchTask[T, None, None]: ...

    @overload
    def __call__(
        self, function: Callable[[list[T]], Sequence[R | Exception]], /
    ) -> BatchTask[T, R, Sequence[R | Exception]]: ...

    @overload
    def __call__(
        self, function: Callable[[list[T]], Sequence[R | Exception] | None], /
    ) -> BatchTask[T, R | None, Sequence[R | Exception] | None]: ...
