"""A redrive in batches, and what is said about it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dibs.cli.jobs import first_line
from dibs.cli.progress import counting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dibs import Client
    from dibs.cli.output import Output
    from dibs.job import Redriven

BATCH = 500
SHOWN = 20
COLUMNS = ("id", "queue", "kind", "state", "answer", "reason")


def bring_back(client: Client, output: Output, found: Sequence[Redriven], rate: float | None) -> list[Redriven]:
    """Redrive what a dry run found, by id: those that stay dead are not found again and again."""
    done: list[Redriven] = []
    with counting(output, "redriven", len(found)) as advance:
        for n in range(0, len(found), BATCH):
            ids = [job.id for job in found[n : n + BATCH]]
            done += client.redrive(ids, max=BATCH, rate=rate, delay=n / rate if rate else 0.0)
            advance(len(ids))
    return done


def report(output: Output, jobs: Sequence[Redriven], limit: int, *, dry_run: bool) -> None:
    """Say what was, or would be, brought back."""
    counts = Counter(job.answer for job in jobs)
    if output.as_json:
        output.json({"dry_run": dry_run, "counts": dict(counts), "jobs": jobs})
        return
    if not jobs:
        output.say("no dead job matches")
        return
    rows = [(j.id, j.queue, j.kind, j.was, j.answer, first_line(j.reason)) for j in jobs]
    output.table(COLUMNS, rows[:SHOWN])
    if len(rows) > SHOWN:
        output.say(f"… and {len(rows) - SHOWN} more")
    if dry_run:
        output.say(f"{len(jobs)} would be redriven; nothing was changed. Add --yes to do it.")
    else:
        output.say(f"{counts['redriven']} redriven", "green")
    if counts["duplicate"]:
        output.say(f"{counts['duplicate']} stay dead: another job has their dedup key now", "yellow")
    if len(jobs) == limit:
        output.note(f"that is the most one call takes (--max {limit}); there may be more")
