"""Brings the schedules of an app's code to the database, when a worker of it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.db import calls

if TYPE_CHECKING:
    from dibs.db.database_async import AsyncDatabase
    from dibs.scheduler.declared import Schedules


async def declare(database: AsyncDatabase, schedules: Schedules) -> dict[str, str]:
    """Declare them all; what happened to each: ``created``, ``changed``, ``unchanged`` or ``retired``.

    A retired schedule is one the app declared before and no longer does. An app that declares none has nothing to say
    unless it did so before, and then they are retired.
    """
    return await database.run(calls.schedules.declare_schedules(schedules.app, [s.as_json() for s in schedules]))
