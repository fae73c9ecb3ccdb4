"""``dibs workers``: the worker processes, their tasks, the number needed, and a stop of one."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Listing
from dibs.cli.session import Session, pass_session
from dibs.cli.types import DURATION, QUEUE
from dibs.cluster.member import BEAT
from dibs.units import size, spoken

if TYPE_CHECKING:
    from dibs.info import TaskInfo, WorkerInfo

SILENT = timedelta(seconds=3 * BEAT)
"""A worker that was not seen for this long has died, hangs or lost its database."""
COLUMNS = (
    ">number", "name", "?host", "?>pid", "?dibs", "?started", "seen", "?>cpu", "?>memory", ">running", "?asked",
    "queues",
)  # fmt: skip


@click.group(cls=Listing)
@click.option("--all", "everyone", is_flag=True, help="Also those that have not been seen for a while.")
@pass_session
def workers(session: Session, everyone: bool) -> None:
    """List the worker processes, and what each of them runs; ask one to stop.

    dibs workers tasks lists what they run, and dibs workers wanted how many are needed.
    """
    with session.client() as client:
        registered, since = client.workers.list(), client.now() - SILENT
    found = [worker for worker in registered if everyone or worker.seen_at > since]
    session.show(found, COLUMNS, _row, empty="no worker is alive; start one with: dibs worker MODULE:APP")
    if silent := len(registered) - len(found):
        session.output.note(f"{silent} more have not been seen for {spoken(SILENT)}: --all")


def _row(w: WorkerInfo) -> tuple[Any, ...]:
    facts = w.facts
    cpu = None if w.cpu is None else f"{w.cpu:.0%}"
    memory = None if w.memory is None else size(w.memory)
    asked = "to stop" if w.stop_asked_at else None
    queues = ", ".join(facts.get("queues", ()))
    return (
        w.id, w.name, facts.get("host"), facts.get("pid"), facts.get("dibs"), w.started_at, w.seen_at, cpu, memory,
        w.running, asked, queues,
    )  # fmt: skip


@workers.command(short_help="Ask a worker to stop, as SIGTERM would.")
@click.argument("number", type=click.IntRange(min=1))
@pass_session
def stop(session: Session, number: int) -> None:
    """Ask a worker to stop, as SIGTERM would, by its number in dibs workers.

    It takes no more jobs, lets those that run finish within its grace time, and ends. Nothing starts it again but what
    started it: systemd or Kubernetes may. Under --processes no other is started in its place.
    """
    with session.client() as client:
        answer = client.workers.stop(number)
    if session.as_json:
        session.output.json({"worker": number, "answer": answer})
    else:
        session.output.say(f"worker {number} is asked to stop")


@workers.command()
@pass_session
def tasks(session: Session) -> None:
    """List the tasks of the workers, and their arguments."""
    with session.client() as client:
        found = client.workers.tasks()
    empty = "no task is registered; a worker registers its tasks when it starts"
    session.show(found, ("kind", "queue", "arguments"), _task, empty=empty)


def _task(task: TaskInfo) -> tuple[Any, ...]:
    return task.kind, task.queue, _signature(task)


def _signature(task: TaskInfo) -> str:
    return ", ".join(f"{a['name']}{'' if a['required'] else '?'}: {a.get('type', 'Any')}" for a in task.arguments)


@workers.command(short_help="Say how many workers a queue needs, or each queue.")
@click.argument("queue", type=QUEUE, required=False)
@click.option("--target", type=DURATION, default="5m", show_default=True, help="How soon a due job should be done.")
@click.option("--slots", type=int, help="How many jobs a worker runs at once; by default what live ones say.")
@click.option("--run-time", type=DURATION, help="How long a run takes; by default as measured.")
@pass_session
def wanted(session: Session, /, queue: str | None, **options: Any) -> None:
    """Say how many workers a queue needs, or each queue: a number for autoscalers.

    Enough to keep up and to do what is due within the target, as far as limits allow; 0 when there is nothing to do.
    """
    with session.client() as client:
        found = client.workers.wanted(queue, **options)
    if session.as_json:
        session.output.json(found if queue is None else found[0])
        return
    rows = [(w.queue, w.workers, w.live, w.ready, w.running, f"{w.arriving:.3g}", w.run_mean, w.limited) for w in found]
    session.output.table(("queue", "wanted", "live", "ready", "running", "per_second", "run_mean", "limited"), rows)
