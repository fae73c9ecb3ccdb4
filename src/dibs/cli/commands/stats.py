"""``dibs stats``: statistics of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dibs.cli.command import Command
from dibs.cli.session import Session, pass_session
from dibs.cli.types import DURATION, KIND, QUEUE
from dibs.stats import Totals

if TYPE_CHECKING:
    from datetime import timedelta

    from dibs.stats import Statistics

GROUPINGS = {"queue,kind": ("queue", "kind"), "queue": ("queue",), "kind": ("kind",), "none": ()}
LATELY = (
    ">succeeded", ">failed", "?>lost", "?>expired", ">run p50", ">p95", "?>p99", "?>max",
    ">wait p50", ">p95", "?>p99", "?>max",
)  # fmt: skip
EVER = (
    "queue", "kind", ">succeeded", ">failed", "?>lost", "?>expired", "?last", "?>last run", ">run: hour", ">day",
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
        columns, rows = zip(*map(_line, found), strict=True)
        session.output.table(columns[0], rows)


def _line(s: Statistics | Totals) -> tuple[tuple[str, ...], tuple[object, ...]]:
    counts = (s.succeeded, s.failed, s.lost, s.expired)
    if isinstance(s, Totals):
        return EVER, (s.queue, s.kind, *counts, s.last_ended_at, s.last_run, s.run_hour, s.run_day, s.run_week,
                      s.run_mean, s.wait_hour, s.wait_day, s.wait_week, s.wait_mean)  # fmt: skip
    about = {name: value for name in ("at", "queue", "kind") if (value := getattr(s, name)) is not None}
    figures = (*counts, s.run_p50, s.run_p95, s.run_p99, s.run_max, s.wait_p50, s.wait_p95, s.wait_p99, s.wait_max)
    return (*about, *LATELY), (*about.values(), *figures)
