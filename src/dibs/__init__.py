"""dibs: a work queue that lives inside your PostgreSQL.

>>> import dibs
>>> with dibs.Client() as client:                                      # doctest: +SKIP
...     client.enqueue("mail", "welcome", {"user": 42})
...     for job in client.claim("mail"):
...         client.complete(job, "sent")
"""

from dibs.client.client import Client
from dibs.client.client_async import AsyncClient
from dibs.client.queue import Message, Queue
from dibs.client.queue_async import AsyncMessage, AsyncQueue
from dibs.errors import (
    ClientClosed,
    ConnectionLost,
    DibsError,
    EmbeddedError,
    IdOutOfRange,
    IdTaken,
    InvalidArgument,
    InvalidPolicy,
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
    UnknownQueue,
    UnknownWorker,
    WrongIsolation,
)
from dibs.job import Answer, Claimed, Depth, Enqueued, Failed, NewJob, Redriven, Resumed
from dibs.policy import Backoff, constant, exponential, progressive
from dibs.states import Outcome, State

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "AsyncClient",
    "AsyncMessage",
    "AsyncQueue",
    "Backoff",
    "Claimed",
    "Client",
    "ClientClosed",
    "ConnectionLost",
    "Depth",
    "DibsError",
    "EmbeddedError",
    "Enqueued",
    "Failed",
    "IdOutOfRange",
    "IdTaken",
    "InvalidArgument",
    "InvalidPolicy",
    "JobEnded",
    "JobError",
    "LeaseLost",
    "Message",
    "NewJob",
    "NotPermitted",
    "Outcome",
    "PayloadTooLarge",
    "Queue",
    "Redriven",
    "Refused",
    "Resumed",
    "SchemaError",
    "SchemaLocked",
    "SchemaMissing",
    "SchemaTooNew",
    "SchemaTooOld",
    "ServerError",
    "State",
    "UnknownJob",
    "UnknownQueue",
    "UnknownWorker",
    "WrongIsolation",
    "constant",
    "exponential",
    "progressive",
]
