"""dibs: a job queue that lives inside your PostgreSQL.

>>> import dibs
>>> with dibs.Client() as client:                                      # doctest: +SKIP
...     client.enqueue("mail", "welcome", {"user": 42})
...     for job in client.claim("mail"):
...         client.complete(job, "sent")
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dibs import errors, events, types
    from dibs.client.app import App, Task
    from dibs.client.client import Client
    from dibs.client.client_async import AsyncClient
    from dibs.client.context import Context, context
    from dibs.client.handle import Job
    from dibs.client.handle_async import AsyncJob
    from dibs.client.middleware import Middleware
    from dibs.errors import (
        ConnectionLost,
        DibsError,
        DuplicateJob,
        InvalidArgument,
        JobEnded,
        LeaseLost,
        NotPermitted,
        QueueFull,
        UnknownJob,
        WaitTimeout,
    )
    from dibs.job import Claimed, NewJob
    from dibs.operation import acting_as
    from dibs.policy import constant, exponential, progressive
    from dibs.retry import GiveUp, Retry, RetryAfter, Snooze
    from dibs.states import Answer, State
    from dibs.worker_settings import Share

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "App",
    "AsyncClient",
    "AsyncJob",
    "Claimed",
    "Client",
    "ConnectionLost",
    "Context",
    "DibsError",
    "DuplicateJob",
    "GiveUp",
    "InvalidArgument",
    "Job",
    "JobEnded",
    "LeaseLost",
    "Middleware",
    "NewJob",
    "NotPermitted",
    "QueueFull",
    "Retry",
    "RetryAfter",
    "Share",
    "Snooze",
    "State",
    "Task",
    "UnknownJob",
    "WaitTimeout",
    "acting_as",
    "constant",
    "context",
    "errors",
    "events",
    "exponential",
    "progressive",
    "types",
]

_HOMES = {
    "Answer": "dibs.states",
    "App": "dibs.client.app",
    "AsyncClient": "dibs.client.client_async",
    "AsyncJob": "dibs.client.handle_async",
    "Claimed": "dibs.job",
    "Client": "dibs.client.client",
    "ConnectionLost": "dibs.errors",
    "Context": "dibs.client.context",
    "DibsError": "dibs.errors",
    "DuplicateJob": "dibs.errors",
    "GiveUp": "dibs.retry",
    "InvalidArgument": "dibs.errors",
    "Job": "dibs.client.handle",
    "JobEnded": "dibs.errors",
    "LeaseLost": "dibs.errors",
    "Middleware": "dibs.client.middleware",
    "NewJob": "dibs.job",
    "NotPermitted": "dibs.errors",
    "QueueFull": "dibs.errors",
    "Retry": "dibs.retry",
    "RetryAfter": "dibs.retry",
    "Share": "dibs.worker_settings",
    "Snooze": "dibs.retry",
    "State": "dibs.states",
    "Task": "dibs.client.app",
    "UnknownJob": "dibs.errors",
    "WaitTimeout": "dibs.errors",
    "acting_as": "dibs.operation",
    "constant": "dibs.policy",
    "context": "dibs.client.context",
    "exponential": "dibs.policy",
    "progressive": "dibs.policy",
}
"""The module that each name comes from. The other names are modules."""


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import what is used when it is used: a list of the commands needs no client and no driver."""
        if name not in __all__:
            raise AttributeError(f"module 'dibs' has no attribute {name!r}")
        found = getattr(import_module(_HOMES[name]), name) if name in _HOMES else import_module(f"dibs.{name}")
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
