"""dibs: a work queue that lives inside your PostgreSQL.

>>> import dibs
>>> with dibs.Client() as client:                                      # doctest: +SKIP
...     client.enqueue("mail", "welcome", {"user": 42})
...     for job in client.claim("mail"):
...         client.complete(job, "sent")
"""

from dibs import events
from dibs.client.app import App, Task, TaskSettings
from dibs.client.client import Client
from dibs.client.client_async import AsyncClient
from dibs.client.context import Context, context
from dibs.client.handle import Job
from dibs.client.handle_async import AsyncJob
from dibs.client.middleware import Middleware
from dibs.client.queue import Message, Queue
from dibs.client.queue_async import AsyncMessage, AsyncQueue
from dibs.client.remote import RemoteTask
from dibs.client.transaction import Transaction
from dibs.client.upkeep import Upkeep
from dibs.client.upkeep_async import AsyncUpkeep
from dibs.db.adapters.detect import AsyncConnection, Connection
from dibs.errors import (
    BrokenContract,
    ClientClosed,
    ConnectionLost,
    DibsError,
    DuplicateJob,
    EmbeddedError,
    HandlersLeft,
    IdOutOfRange,
    IdTaken,
    InvalidArgument,
    InvalidPolicy,
    InvalidSchedule,
    JobEnded,
    JobError,
    LeaseLost,
    LoginRefused,
    NotAllowed,
    NotPermitted,
    PayloadTooLarge,
    QueueFull,
    Refused,
    SchemaError,
    SchemaInUse,
    SchemaLocked,
    SchemaMissing,
    SchemaTooNew,
    SchemaTooOld,
    ServerError,
    ShardNotHeld,
    StillSharded,
    UnexpectedResult,
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
from dibs.info import (
    Depth,
    DrainEstimate,
    JobSummary,
    Limit,
    MadeDay,
    Pruned,
    QueueInfo,
    Rescued,
    Resumed,
    TaskInfo,
    WorkerInfo,
)
from dibs.job import Answered, Claimed, Enqueued, Failed, Held, NewJob, Redriven
from dibs.policy import (
    Backoff,
    DedupScope,
    GroupPolicy,
    History,
    JobOptions,
    OnDuplicate,
    QueuePolicy,
    Seconds,
    WhenFull,
    constant,
    exponential,
    progressive,
)
from dibs.progress import Status
from dibs.retry import GiveUp, Retry, RetryAfter, Snooze
from dibs.schedule import CatchUp, OnFailure, Overlap, Schedule, ScheduleRule, Triggered
from dibs.shards import Hold, Shard
from dibs.states import Answer, Outcome, State
from dibs.stats import Statistics, Totals

__version__ = "0.1.0"
from dibs.worker_settings import Share, WorkerOptions, WorkerSettings

__all__ = [
    "Answer",
    "Answered",
    "App",
    "AsyncClient",
    "AsyncConnection",
    "AsyncJob",
    "AsyncMessage",
    "AsyncQueue",
    "AsyncUpkeep",
    "Backoff",
    "BrokenContract",
    "CatchUp",
    "Claimed",
    "Client",
    "ClientClosed",
    "Connection",
    "ConnectionLost",
    "Context",
    "DedupScope",
    "Depth",
    "DibsError",
    "DrainEstimate",
    "DuplicateJob",
    "EmbeddedError",
    "Enqueued",
    "Failed",
    "GiveUp",
    "GroupPolicy",
    "HandlersLeft",
    "Held",
    "History",
    "Hold",
    "IdOutOfRange",
    "IdTaken",
    "InvalidArgument",
    "InvalidPolicy",
    "InvalidSchedule",
    "Job",
    "JobEnded",
    "JobError",
    "JobOptions",
    "JobSummary",
    "LeaseLost",
    "Limit",
    "LoginRefused",
    "MadeDay",
    "Message",
    "Middleware",
    "NewJob",
    "NotAllowed",
    "NotPermitted",
    "OnDuplicate",
    "OnFailure",
    "Outcome",
    "Overlap",
    "PayloadTooLarge",
    "Pruned",
    "Queue",
    "QueueFull",
    "QueueInfo",
    "QueuePolicy",
    "Redriven",
    "Refused",
    "RemoteTask",
    "Rescued",
    "Resumed",
    "Retry",
    "RetryAfter",
    "Schedule",
    "ScheduleRule",
    "SchemaError",
    "SchemaInUse",
    "SchemaLocked",
    "SchemaMissing",
    "SchemaTooNew",
    "SchemaTooOld",
    "Seconds",
    "ServerError",
    "Shard",
    "ShardNotHeld",
    "Share",
    "Snooze",
    "State",
    "Statistics",
    "Status",
    "StillSharded",
    "Task",
    "TaskInfo",
    "TaskSettings",
    "Totals",
    "Transaction",
    "Triggered",
    "UnexpectedResult",
    "UnfitFunction",
    "UnknownJob",
    "UnknownLimit",
    "UnknownQueue",
    "UnknownSchedule",
    "UnknownTask",
    "UnknownWorker",
    "Upkeep",
    "WaitTimeout",
    "WhenFull",
    "WorkerInfo",
    "WorkerOptions",
    "WorkerSettings",
    "WrongIsolation",
    "constant",
    "context",
    "events",
    "exponential",
    "progressive",
]
