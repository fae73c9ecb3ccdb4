"""``dibs tasks``: what the workers run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Command
from dibs.cli.session import Session, pass_session

if TYPE_CHECKING:
    from dibs.info import TaskInfo


@click.command(cls=Command)
@pass_session
def tasks(session: Session) -> None:
    """List the tasks of the workers, and their arguments."""
    with session.client() as client:
        found = client.workers.tasks()
    empty = "no task is registered; a worker registers its tasks when it starts"
    session.show(found, ("kind", "queue", "arguments"), _row, empty=empty)


def _row(task: TaskInfo) -> tuple[Any, ...]:
    return task.kind, task.queue, _signature(task)


def _signature(task: TaskInfo) -> str:
    return ", ".join(f"{a['name']}{'' if a['required'] else '?'}: {a.get('type', 'Any')}" for a in task.arguments)
