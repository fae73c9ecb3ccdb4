"""One value for each SQL function: what to send, and how to read the answer. A file for each room.

The sync and the async database run the same values, so no verb is described twice.
"""

from dibs.db.calls import (
    channels,
    doctor,
    groups,
    jobs,
    limits,
    names,
    operate,
    queues,
    schedules,
    schema,
    shards,
    statistics,
    upkeep,
    workers,
)
from dibs.db.calls.call import Call

__all__ = [
    "Call",
    "channels",
    "doctor",
    "groups",
    "jobs",
    "limits",
    "names",
    "operate",
    "queues",
    "schedules",
    "schema",
    "shards",
    "statistics",
    "upkeep",
    "workers",
]
