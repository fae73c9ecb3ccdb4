"""Hooks around enqueues and runs: for tenants, traces, or a framework's connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from dibs.client.context import Context
    from dibs.job import Enqueued, NewJob


class Middleware:
    """The base of middleware. Override its hooks and add it: ``app.add_middleware(Mine())``. The first is outermost.

    Sync hooks wrap sync code, in the handler's thread or process; async hooks wrap async code. Call ``proceed`` to
    continue. A hook may change its arguments and result, and catch its exceptions.
    """

    def enqueue(
        self, jobs: Sequence[NewJob], proceed: Callable[[Sequence[NewJob]], Sequence[Enqueued]]
    ) -> Sequence[Enqueued]:
        """Wrap an enqueue from sync code."""
        return proceed(jobs)

    async def aenqueue(
        self, jobs: Sequence[NewJob], proceed: Callable[[Sequence[NewJob]], Awaitable[Sequence[Enqueued]]]
    ) -> Sequence[Enqueued]:
        """Wrap an enqueue from async code."""
        return await proceed(jobs)

    def run(self, context: Context, proceed: Callable[[], Any]) -> Any:  # noqa: ARG002
        """Wrap a run of a ``def`` handler; ``context`` is its attempt."""
        return proceed()

    async def arun(self, context: Context, proceed: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ARG002
        """Wrap a run of an ``async def`` handler."""
        return await proceed()


def hooks(middleware: Sequence[Middleware], name: str) -> list[Any]:
    """Return the overridden hooks of one name, from the innermost to the outermost. Others would only cost time."""
    plain = getattr(Middleware, name)
    return [getattr(m, name) for m in reversed(middleware) if getattr(type(m), name) is not plain]


def call_hooks(
    inner_to_outer: Sequence[Any], jobs: Iterable[NewJob], enqueue: Callable[[Iterable[NewJob]], Any]
) -> Any:
    """Pass jobs through enqueue hooks, and then to the enqueue. A hook gets a list; without hooks, jobs stay a stream.

    Returns the answer of the outermost hook: of async hooks, an awaitable.
    """
    if not inner_to_outer:
        return enqueue(jobs)
    *inner, outermost = inner_to_outer
    return outermost(list(jobs), lambda changed: call_hooks(inner, changed, enqueue))
