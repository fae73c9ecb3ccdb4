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

RETRY_AFTER = 10.0
"""Seconds after a refusal until declaring again: an operator may have set the limit meanwhile."""
REFUSED = "refused"


class Declared(NamedTuple):
    """The answer to one declaration: ``created``, ``changed``, ``unchanged``, ``removed``, ``retired`` or ``refused``.

    ``what`` is ``limit`` or ``schedule``. ``reason`` says why it was refused, and what helps.
    """

    what: str
    name: str
    answer: str
    reason: str | None = None


class Announcement:
    """Declares the limits and schedules of an app until all are in force. A task waits for its limit to be in force."""

    def __init__(self, app: App, database: AsyncDatabase, name: str) -> None:
        self.runnable = dict(app.tasks)
        """The tasks that may be run, by kind. Changed in place: the executor reads it."""
        self._app = app
        self._database = database
        self._name = name
        self._refused: set[tuple[str, str]] = set()

    async def announce_again(self) -> float:
        """Declare again if something was refused. Return in how many seconds to do so once more, or infinity."""
        if self._refused:
            await self.announce()
        return RETRY_AFTER if self._refused else math.inf

    async def announce(self) -> None:
        """Declare limits and schedules. Report each refusal once."""
        refused = [one for one in await declare_rules(self._app, self._database, self._name) if one.answer == REFUSED]
        for one in refused:
            if (one.what, one.name) not in self._refused:
                self._app.events.tell(NotInForce(one.what, one.name, one.reason or ""))
        self._refused = {(one.what, one.name) for one in refused}
        self.runnable.update(self._app.tasks)
        for one in refused:
            if one.what == "limit":
                del self.runnable[one.name]


async def declare_tasks(app: App, database: AsyncDatabase) -> None:
    """Register the tasks, so that producers can enqueue them by name."""
    await database.run(calls.workers.set_tasks([task.facts() for task in app.tasks.values()]))


async def declare_rules(app: App, database: AsyncDatabase, name: str) -> list[Declared]:
    """Declare the limits of tasks, and the schedules. A role that may not set them learns which are not in force.

    ``name`` is where to find the app, such as ``shop.tasks:app``.
    """
    role = await database.run(calls.schema.login())
    remedy = f"as a role that may, run: dibs declare {name if ':' in name else 'MODULE:APP'}"
    return [*await _limits(app, database, role, remedy), *await _schedules(app, database, role, remedy)]


async def _limits(app: App, database: AsyncDatabase, role: str, remedy: str) -> list[Declared]:
    wanted = {kind: _limit_of(task) for kind, task in app.tasks.items()}
    declared = [(kind, task.settings.concurrency, task.settings.rate) for kind, task in app.tasks.items()]
    limited = [kind for kind, limit in wanted.items() if limit]
    answers, why = await _answers(
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
    """Describe the limit of a task; an empty string if it has none."""
    concurrency, rate = task.settings.concurrency, task.settings.rate
    parts = [] if concurrency is None else [f"{concurrency}"]
    return " and ".join(parts if rate is None else [*parts, f"{rate:g} per second"])


async def _schedules(app: App, database: AsyncDatabase, role: str, remedy: str) -> list[Declared]:
    answers, why = await _answers(
        declare(database, app.schedules),
        [schedule.name for schedule in app.schedules],
        f"role {role} may not declare schedules, since it lacks dibs_producer",
    )
    return [
        _declared("schedule", name, answer, f"schedule {name} is not in force as the code has it, and {why}; {remedy}")
        for name, answer in answers.items()
    ]


async def _answers(
    declaring: Awaitable[dict[str, str]], names: Iterable[str], lacks_role: str
) -> tuple[dict[str, str], str]:
    """Return the answers, and why some are refused. An error refuses all, unless the connection was lost."""
    try:
        return await declaring, lacks_role
    except ConnectionLost:
        raise
    except DibsError as error:
        return dict.fromkeys(names, REFUSED), error.message


def _declared(what: str, name: str, answer: str, reason: str) -> Declared:
    return Declared(what, name, answer, reason if answer == REFUSED else None)
