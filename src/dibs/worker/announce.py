"""Brings what an app's code declares to the database: its tasks, their limits, and its schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dibs.db import calls
from dibs.errors import NotPermitted
from dibs.events import Trouble
from dibs.scheduler import declare

if TYPE_CHECKING:
    from dibs.client.app import App
    from dibs.db.database_async import AsyncDatabase


async def announce(app: App, database: AsyncDatabase) -> None:
    """Register the tasks, and set the limits and schedules if our role may."""
    await database.run(calls.workers.set_tasks([task.facts() for task in app.tasks.values()]))
    # A worker's role may neither enqueue, which is what a schedule does, nor change limits.
    try:
        await declare(database, app.schedules)
        for task in app.tasks.values():
            if task.settings.limit is not None:
                kind = {"queue": None, "kind": task.name, "resource": None}
                await database.run(calls.limits.set_limit(kind, task.settings.limit, None, None))
    except NotPermitted as error:
        app.events.tell(Trouble("declaring schedules and limits", error))
