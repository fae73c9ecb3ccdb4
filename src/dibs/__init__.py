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
    BrokenContract,
    ClientClosed,
    ConnectionLost,
    DibsError,
    DuplicateJob,
    EmbeddedError,
    IdOutOfRange,
    IdTaken,
    InvalidArgument,
    InvalidPolicy,
    InvalidSchedule,
    JobEnded,
    JobError,
    LeaseLost,
    NotAllowed,
    NotPermitted,
    PayloadTooLarge,
    QueueFull,
    Refused,
    SchemaError,
    SchemaLocked,
    SchemaMissing,
    SchemaTooNew,
    SchemaTooOld,
    ServerError,
    ShardNotHeld,
    StillSharded,
    UnfitFunction,
    UnknownJob,
    UnknownLimit,
    UnknownQueue,
    UnknownSchedule,
    UnknownTask,
    UnknownWorker,
    WaitTimeout,
    WrongIsolation,
)
from dibs.job import Answer, Claimed, Depth, DrainEstimate, Enqueued, Failed, Limit, NewJob, Redriven, Resumed
from dibs.policy import Backoff, constant, exponential, progressive
from dibs.progress import Status
from dibs.retry import GiveUp, Retry, RetryAfter, Snooze
from dibs.states import Outcome, State
from dibs.stats import Statistics, Totals

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "App",
    "AsyncClient",
    "AsyncJob",
    "AsyncMessage",
    "AsyncQueue",
    "Backoff",
    "BrokenContract",
    "Claimed",
    "Client",
    "ClientClosed",
    "ConnectionLost",
    "Context",
    "Depth",
    "DibsError",
    "DrainEstimate",
    "DuplicateJob",
    "EmbeddedError",
    "Enqueued",
    "Failed",
    "GiveUp",
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
    "NotAllowed",
    "NotPermitted",
    "Outcome",
    "PayloadTooLarge",
    "Queue",
    "QueueFull",
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
    "ShardNotHeld",
    "Snooze",
    "State",
    "Statistics",
    "Status",
    "StillSharded",
    "Task",
    "Totals",
    "UnfitFunction",
    "UnknownJob",
    "UnknownLimit",
    "UnknownQueue",
    "UnknownSchedule",
    "UnknownTask",
    "UnknownWorker",
    "WaitTimeout",
    "WrongIsolation",
    "constant",
    "context",
    "events",
    "exponential",
    "progressive",
]
