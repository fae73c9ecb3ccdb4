"""Brings what an app's code declares to the database: its tasks, their limits, and its schedules."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from dibs.db import calls
from dibs.errors import ConnectionLost, DibsError
from dibs.events import NotInForce
from dibs.scheduler import declare

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

    from dibs.client.app import App
    from dibs.client.task import Task
    from dibs.db.database_async import AsyncDatabase

AGAIN = 10.0
"""In how many seconds to look again whether what the code declares is in force."""
REFUSED = "refused"


class Declared(NamedTuple):
    """What came of one declaration: ``created``, ``changed``, ``unchanged``, ``removed``, ``retired`` or ``refused``.

    ``reason`` says why it was refused, and what helps.
    """

    what: str
    name: str
    answer: str
    reason: str | None = None


class Announcement:
    """Declares what an app's code says, until all of it is in force. Until then, what has no limit is not run."""

    def __init__(self, app: App, database: AsyncDatabase, name: str) -> None:
        self.runnable = dict(app.tasks)
        """The tasks that may be run, by kind; changed in place."""
        self._app = app
        self._database = database
        self._name = name
        self._told: set[tuple[str, str]] = set()

    async def announce_again(self) -> float:
        """Declare again if something was refused; in how many seconds to look again, which is never if nothing was."""
        if self._told:
            await self.announce()
        return AGAIN if self._told else math.inf

    async def announce(self) -> None:
        """Declare limits and schedules, and tell what is not in force."""
        refused = [one for one in await declare_rules(self._app, self._database, self._name) if one.answer == REFUSED]
        for one in refused:
            if (one.what, one.name) not in self._told:
                self._app.events.tell(NotInForce(one.what, one.name, one.reason or ""))
        self._told = {(one.what, one.name) for one in refused}
        unkept = {one.name for one in refused if one.what == "limit"}
        self.runnable.update(self._app.tasks)
        for kind in unkept:
            del self.runnable[kind]


async def declare_tasks(app: App, database: AsyncDatabase) -> None:
    """Register the tasks, so that producers can enqueue them by name."""
    await database.run(calls.workers.set_tasks([task.facts() for task in app.tasks.values()]))


async def declare_rules(app: App, database: AsyncDatabase, name: str) -> list[Declared]:
    """Declare the limits of tasks, and the schedules; where our role may not, see whether they are in force.

    ``name`` is where the app is found, such as ``shop.tasks:app``.
    """
    role = await database.run(calls.schema.login())
    remedy = f"as a role that may, run: dibs declare {name if ':' in name else 'MODULE:APP'}"
    return [*await _limits(app, database, role, remedy), *await _schedules(app, database, role, remedy)]


async def _limits(app: App, database: AsyncDatabase, role: str, remedy: str) -> list[Declared]:
    wanted = {kind: _limit_of(task) for kind, task in app.tasks.items()}
    declared = [(kind, task.settings.concurrency, task.settings.rate) for kind, task in app.tasks.items()]
    limited = [kind for kind, limit in wanted.items() if limit]
    answers, why = await _answered(
        database.run(calls.limits.declare_limits(declared)),
        limited,
        f"role {role} may not set limits, since it lacks dibs_admin",
    )
    refusal = "task {} is not run: its limit of {} is not kept, and {}; {}"
    return [
        _declared("limit", kind, answer, refusal.format(kind, wanted[kind], why, remedy))
        for kind, answer in answers.items()
        if wanted[kind] or answer == "removed"
    ]


def _limit_of(task: Task[Any, Any]) -> str:
    """The limit of a task in words; nothing if it has none."""
    concurrency, rate = task.settings.concurrency, task.settings.rate
    said = [] if concurrency is None else [f"{concurrency}"]
    return " and ".join(said if rate is None else [*said, f"{rate:g} per second"])


async def _schedules(app: App, database: AsyncDatabase, role: str, remedy: str) -> list[Declared]:
    lacks = f"role {role} may not declare schedules, since it lacks dibs_producer"
    answers, why = await _answered(declare(database, app.schedules), [one.name for one in app.schedules], lacks)
    return [
        _declared("schedule", name, answer, f"schedule {name} is not in force as the code has it, and {why}; {remedy}")
        for name, answer in answers.items()
    ]


async def _answered(asking: Awaitable[dict[str, str]], names: Iterable[str], lacks: str) -> tuple[dict[str, str], str]:
    """The answers, and why some are refused; an error of anything but the connection refuses them all."""
    try:
        return await asking, lacks
    except ConnectionLost:
        raise
    except DibsError as error:
        return dict.fromkeys(names, REFUSED), error.message


def _declared(what: str, name: str, answer: str, reason: str) -> Declared:
    return Declared(what, name, answer, reason if answer == REFUSED else None)
