"""dibs: a work queue that lives inside your PostgreSQL.

>>> import dibs
>>> with dibs.Client() as client:                                      # doctest: +SKIP
...     client.enqueue("mail", "welcome", {"user": 42})
...     for job in client.claim("mail"):
...         client.complete(job, "sent")
"""

from dibs import events
from dibs.client.app import App, Task
from dibs.client.client import Client
from dibs.client.client_async import AsyncClient
from dibs.client.context import Context, context
from dibs.client.handle import Job
from dibs.client.handle_async import AsyncJob
from dibs.client.middleware import Middleware
from dibs.client.queue import Message, Queue
from dibs.client.queue_async import AsyncMessage, AsyncQueue
from dibs.client.remote import RemoteTask
from dibs.errors import (
    ClientClosed,
    ConnectionLost,
    DibsError,
    EmbeddedError,
    IdOutOfRange,
    IdTaken,
    InvalidArgument,
    InvalidPolicy,
    InvalidSchedule,
    JobEnded,
    JobError,
    LeaseLost,
    NotPermitted,
    PayloadTooLarge,
    Refused,
    SchemaError,
    SchemaLocked,
    SchemaMissing,
    SchemaTooNew,
    SchemaTooOld,
    ServerError,
    UnknownJob,
    UnknownLimit,
    UnknownQueue,
    UnknownSchedule,
    UnknownTask,
    UnknownWorker,
    WrongIsolation,
)
from dibs.job import Answer, Claimed, Depth, Enqueued, Failed, Limit, NewJob, Redriven, Resumed
from dibs.policy import Backoff, constant, exponential, progressive
from dibs.retry import Final, Retry, RetryAfter, Snooze
from dibs.states import Outcome, State

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "App",
    "AsyncClient",
    "AsyncJob",
    "AsyncMessage",
    "AsyncQueue",
    "Backoff",
    "Claimed",
    "Client",
    "ClientClosed",
    "ConnectionLost",
    "Context",
    "Depth",
    "DibsError",
    "EmbeddedError",
    "Enqueued",
    "Failed",
    "Final",
    "IdOutOfRange",
    "IdTaken",
    "InvalidArgument",
    "InvalidPolicy",
    "InvalidSchedule",
    "Job",
    "JobEnded",
    "JobError",
    "LeaseLost",
    "Limit",
    "Message",
    "Middleware",
    "NewJob",
    "NotPermitted",
    "Outcome",
    "PayloadTooLarge",
    "Queue",
    "Redriven",
    "Refused",
    "RemoteTask",
    "Resumed",
    "Retry",
    "RetryAfter",
    "SchemaError",
    "SchemaLocked",
    "SchemaMissing",
    "SchemaTooNew",
    "SchemaTooOld",
    "ServerError",
    "Snooze",
    "State",
    "Task",
    "UnknownJob",
    "UnknownLimit",
    "UnknownQueue",
    "UnknownSchedule",
    "UnknownTask",
    "UnknownWorker",
    "WrongIsolation",
    "constant",
    "context",
    "events",
    "exponential",
    "progressive",
]
