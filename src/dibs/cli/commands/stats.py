"""``dibs stats``: statistics of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from dibs.cli.command import Command
from dibs.cli.session import Session, pass_session
from dibs.cli.types import DURATION, KIND, QUEUE

if TYPE_CHECKING:
    from datetime import timedelta

    from dibs.stats import Statistics, Totals

GROUPINGS = {"queue,kind": ("queue", "kind"), "queue": ("queue",), "kind": ("kind",), "none": ()}
LATELY = (
    ">succeeded", ">failed", "?>lost", "?>expired", ">run p50", ">p95", "?>p99", "?>max",
    ">wait p50", ">p95", "?>p99", "?>max",
)  # fmt: skip
EVER = (
    ">succeeded", ">failed", "?>lost", "?>expired", "?last", "?>last run", ">run: hour", ">day",
    "?>week", "?>ever", "?>wait: hour", "?>day", "?>week", "?>ever",
)  # fmt: skip


@click.command(cls=Command)
@click.option("-q", "--queue", type=QUEUE, help="Only of this queue.")
@click.option("-k", "--kind", type=KIND, help="Only of this kind.")
@click.option("--since", type=DURATION, default="1h", show_default=True, help="How far to go back.")
@click.option("--every", type=DURATION, help="A line for each period of this length.")
@click.option(
    "--by",
    type=click.Choice(list(GROUPINGS)),
    default="queue,kind",
    show_default=True,
    help="A line for each of these.",
)
@click.option("--totals", is_flag=True, help="For all time, with the last run and the averages of hour, day and week.")
@pass_session
def stats(
    session: Session,
    queue: str | None,
    kind: str | None,
    since: timedelta,
    every: timedelta | None,
    by: str,
    totals: bool,
) -> None:
    """Count how runs ended, how long they took, and how long jobs waited for their first run."""
    if totals:
        _refuse_with_totals("since", "every", "by")
    with session.client() as client:
        found: list[Statistics] | list[Totals]
        found = (
            client.stats.totals(queue, kind)
            if totals
            else client.stats.statistics(queue, kind, by=GROUPINGS[by], since=since, every=every)
        )
    if session.as_json:
        session.output.json(found)
    elif not found:
        session.output.note("nothing was counted; dibs maintain, or a worker, counts every few seconds")
    else:
        about = [name for name in ("at", "queue", "kind") if any(getattr(s, name, None) is not None for s in found)]
        figures = _totals if totals else _recent
        session.output.table(
            [*about, *(EVER if totals else LATELY)],
            [[*(getattr(s, name) for name in about), *figures(s)] for s in found],
        )


def _refuse_with_totals(*options: str) -> None:
    for name in options:
        if click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name} is not for --totals")


def _recent(s: Any) -> tuple[object, ...]:
    return (s.succeeded, s.failed, s.lost, s.expired, s.run_p50, s.run_p95, s.run_p99, s.run_max,
            s.wait_p50, s.wait_p95, s.wait_p99, s.wait_max)  # fmt: skip


def _totals(s: Any) -> tuple[object, ...]:
    return (s.succeeded, s.failed, s.lost, s.expired, s.last_ended_at, s.last_run, s.run_hour, s.run_day, s.run_week,
            s.run_mean, s.wait_hour, s.wait_day, s.wait_week, s.wait_mean)  # fmt: skip
