"""``dibs workers``: who is alive; and asking one of them to stop."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from dibs.cli.command import Group
from dibs.cli.session import Session, pass_session
from dibs.cluster.member import BEAT
from dibs.units import size, spoken

if TYPE_CHECKING:
    from dibs.info import WorkerInfo

SILENT = timedelta(seconds=3 * BEAT)
"""A worker that was not seen for this long has died, hangs or lost its database."""
COLUMNS = (
    ">number", "name", "?host", "?>pid", "?dibs", "?started", "seen", "?>cpu", "?>memory", ">running", "?asked",
    "queues",
)  # fmt: skip


@click.group(cls=Group, invoke_without_command=True)
@click.option("--all", "everyone", is_flag=True, help="Also those that have not been seen for a while.")
@click.pass_context
def workers(ctx: click.Context, /, everyone: bool) -> None:
    """List the worker processes and what each of them runs; or ask one to stop."""
    if ctx.invoked_subcommand is None:
        session = ctx.ensure_object(Session)
        session.warn()
        _list(session, everyone)


def _list(session: Session, everyone: bool) -> None:
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


@workers.command()
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
