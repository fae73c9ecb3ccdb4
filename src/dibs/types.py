"""The types of arguments and answers, for annotations: ``def report(depth: dibs.types.Depth) -> None``."""

from dibs.client.channels import Channels
from dibs.client.channels_async import AsyncChannels
from dibs.client.context import StopReason
from dibs.client.decorators import BatchDecorator, ScheduleDecorator, TaskDecorator
from dibs.client.failures import Failures
from dibs.client.failures_async import AsyncFailures
from dibs.client.groups import Groups
from dibs.client.groups_async import AsyncGroups
from dibs.client.limits import Limits
from dibs.client.limits_async import AsyncLimits
from dibs.client.messages import Message, MessageQueue
from dibs.client.messages_async import AsyncMessage, AsyncMessageQueue
from dibs.client.queues import Queues
from dibs.client.queues_async import AsyncQueues
from dibs.client.remote import RemoteTask
from dibs.client.schedules import Schedules
from dibs.client.schedules_async import AsyncSchedules
from dibs.client.stats import Stats
from dibs.client.stats_async import AsyncStats
from dibs.client.task import AsyncTask, BatchTask, PlainTask, TaskSettings
from dibs.client.transaction import Transaction
from dibs.client.upkeep import Upkeep
from dibs.client.upkeep_async import AsyncUpkeep
from dibs.client.workers import Workers
from dibs.client.workers_async import AsyncWorkers
from dibs.db.adapters.detect import AsyncConnection, Connection
from dibs.info import (
    Depth,
    DrainEstimate,
    Finding,
    GroupInfo,
    JobSummary,
    Limit,
    MadeDay,
    PriorityDepth,
    Pruned,
    QueueInfo,
    Rescued,
    Resumed,
    RunningJob,
    SettingInfo,
    TaskInfo,
    Vital,
    WorkerInfo,
    WorkersWanted,
)
from dibs.job import Answered, Enqueued, Failed, Held, JobOptions
from dibs.operation import Audit, Changed, Exported, FailureGroup, FailureHour, Found, JobFilter, Steps, StillDead
from dibs.policy import (
    Backoff,
    DedupScope,
    GroupPolicy,
    History,
    JobChanges,
    OnDuplicate,
    QueuePolicy,
    Seconds,
    WhenFull,
)
from dibs.progress import Status
from dibs.schedule import CatchUp, OnFailure, Overlap, Schedule, ScheduleRule, Triggered
from dibs.shards import Hold, Shard
from dibs.states import Outcome
from dibs.stats import Counters, Statistics, Totals
from dibs.worker_settings import WorkerOptions, WorkerSettings

__all__ = [
    "Answered",
    "AsyncChannels",
    "AsyncConnection",
    "AsyncFailures",
    "AsyncGroups",
    "AsyncLimits",
    "AsyncMessage",
    "AsyncMessageQueue",
    "AsyncQueues",
    "AsyncSchedules",
    "AsyncStats",
    "AsyncTask",
    "AsyncUpkeep",
    "AsyncWorkers",
    "Audit",
    "Backoff",
    "BatchDecorator",
    "BatchTask",
    "CatchUp",
    "Changed",
    "Channels",
    "Connection",
    "Counters",
    "DedupScope",
    "Depth",
    "DrainEstimate",
    "Enqueued",
    "Exported",
    "Failed",
    "FailureGroup",
    "FailureHour",
    "Failures",
    "Finding",
    "Found",
    "GroupInfo",
    "GroupPolicy",
    "Groups",
    "Held",
    "History",
    "Hold",
    "JobChanges",
    "JobFilter",
    "JobOptions",
    "JobSummary",
    "Limit",
    "Limits",
    "MadeDay",
    "Message",
    "MessageQueue",
    "OnDuplicate",
    "OnFailure",
    "Outcome",
    "Overlap",
    "PlainTask",
    "PriorityDepth",
    "Pruned",
    "QueueInfo",
    "QueuePolicy",
    "Queues",
    "RemoteTask",
    "Rescued",
    "Resumed",
    "RunningJob",
    "Schedule",
    "ScheduleDecorator",
    "ScheduleRule",
    "Schedules",
    "Seconds",
    "SettingInfo",
    "Shard",
    "Statistics",
    "Stats",
    "Status",
    "Steps",
    "StillDead",
    "StopReason",
    "TaskDecorator",
    "TaskInfo",
    "TaskSettings",
    "Totals",
    "Transaction",
    "Triggered",
    "Upkeep",
    "Vital",
    "WhenFull",
    "WorkerInfo",
    "WorkerOptions",
    "WorkerSettings",
    "Workers",
    "WorkersWanted",
]
