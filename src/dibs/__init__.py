"""dibs: a job queue that lives inside your PostgreSQL.

>>> import dibs
>>> with dibs.Client() as client:                                      # doctest: +SKIP
...     client.enqueue("mail", "welcome", {"user": 42})
...     for job in client.claim("mail"):
...         client.complete(job, "sent")
"""

from importlib import import_module
from typing import TYPE_CHECKING

from dibs import errors, events
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


if TYPE_CHECKING:
    from dibs import types
else:

    def __getattr__(name: str) -> object:
        """Import ``dibs.types`` when it is first used: most programs need it for annotations only."""
        if name == "types":
            return import_module("dibs.types")
        raise AttributeError(f"module 'dibs' has no attribute {name!r}")
