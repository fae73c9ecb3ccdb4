"""Brings the schedules of an app's code to the database when a worker starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.db import calls

if TYPE_CHECKING:
    from dibs.db.database_async import AsyncDatabase
    from dibs.scheduler.declared import Schedules


async def declare(database: AsyncDatabase, schedules: Schedules) -> dict[str, str]:
    """Declare all schedules. Return for each ``created``, ``changed``, ``unchanged`` or ``retired``.

    A schedule is retired if the app declared it before and no longer does.
    """
    return await database.run(calls.schedules.declare_schedules(schedules.app, [s.as_json() for s in schedules]))
