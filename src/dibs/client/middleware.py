"""Hooks around enqueue and run, for what every task needs: tenants, traces, a framework's connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from dibs.client.context import Context
    from dibs.job import Enqueued, NewJob


class Middleware:
    """Subclass it, override what you need, and add it: ``app.add_middleware(Mine())``. The first is the outermost.

    Sync code is wrapped by the sync hooks, where it runs (a handler's thread or process); async code by the async ones.
    ``proceed`` goes on; what it returns is yours to change, and what it raises is yours to catch.
    """

    def enqueue(
        self, jobs: Sequence[NewJob], proceed: Callable[[Sequence[NewJob]], Sequence[Enqueued]]
    ) -> Sequence[Enqueued]:
        """Around an enqueue from sync code."""
        return proceed(jobs)

    async def aenqueue(
        self, jobs: Sequence[NewJob], proceed: Callable[[Sequence[NewJob]], Awaitable[Sequence[Enqueued]]]
    ) -> Sequence[Enqueued]:
        """Around an enqueue from async code."""
        return await proceed(jobs)

    def run(self, context: Context, proceed: Callable[[], Any]) -> Any:  # noqa: ARG002
        """Around a ``def`` handler; ``context`` is its attempt."""
        return proceed()

    async def arun(self, context: Context, proceed: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ARG002
        """Around an ``async def`` handler."""
        return await proceed()


def hooks(middleware: Sequence[Middleware], name: str) -> list[Any]:
    """The hooks of one name that are overridden, the innermost first; those that only pass on cost nothing."""
    plain = getattr(Middleware, name)
    return [getattr(m, name) for m in reversed(middleware) if getattr(type(m), name) is not plain]


def walk(hooks: Sequence[Any], jobs: Iterable[NewJob], enqueue: Callable[[Iterable[NewJob]], Any]) -> Any:
    """Pass jobs through enqueue hooks, the innermost given first, and on to the enqueue itself."""
    if not hooks:
        return enqueue(jobs)
    return hooks[-1](list(jobs), lambda changed: walk(hooks[:-1], changed, enqueue))
