"""The calls of the SQL functions: the statement to send, and how to read its answer. A file for each room.

The sync and the async database run the same calls. A room is imported at the first use of one of its functions: few
programs call them all.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from dibs.db.calls.call import Call

if TYPE_CHECKING:
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

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in __all__:
            return import_module(f"dibs.db.calls.{name}")
        raise AttributeError(f"module 'dibs.db.calls' has no attribute {name!r}")
