"""The four tables of the page, and their columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from dibs.cli.output import first_line
from dibs.cluster.member import BEAT
from dibs.units import spoken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dibs.cli.top.snapshot import Snapshot

Row = tuple[str, tuple[Any, ...]]
"""A row's key, and the values of its columns."""

BAR = 8
"""The width of a progress bar."""


@dataclass(frozen=True, slots=True, order=True)
class Count:
    """A number and its text, which differ for an estimate."""

    number: int
    text: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class View:
    """A table: its name, its columns (numbers stand under ``>name``), and its rows of a snapshot."""

    name: str
    columns: tuple[str, ...]
    rows: Callable[[Snapshot], Iterator[Row]]


def _queues(snapshot: Snapshot) -> Iterator[Row]:
    for d in snapshot.depths:
        rate = snapshot.rates.get(d.queue)
        ended, failed = (round(rate.succeeded, 1), round(rate.failed, 1)) if rate else (0.0, 0.0)
        oldest = d.oldest_ready if d.ready else None
        name = f"{d.queue} (paused)" if d.paused else d.queue
        counts = (Count(getattr(d, n), d.told(n)) for n in ("ready", "scheduled", "blocked", "running", "dead"))
        yield d.queue, (name, *counts, oldest, ended, failed)


def _running(snapshot: Snapshot) -> Iterator[Row]:
    for job in snapshot.running:
        message = "is to stop" if job.cancel_requested else (job.progress or {}).get("message")
        since = snapshot.at - job.claimed_at
        yield str(job.id), (job.kind or job.queue, since, bar(job.progress), str(job.id), job.worker, message)


def _workers(snapshot: Snapshot) -> Iterator[Row]:
    for w in snapshot.workers:
        seen = snapshot.at - w.seen_at
        state = "silent" if seen > timedelta(seconds=3 * BEAT) else "stopping" if w.stop_asked_at else ""
        where = f"{w.facts.get('host', '?')}:{w.facts.get('pid', '?')}"
        yield str(w.id), (w.id, w.name, where, state, w.running, seen, ", ".join(w.facts.get("queues", ())))


def _dead(snapshot: Snapshot) -> Iterator[Row]:
    for job in snapshot.dead:
        yield str(job.id), (str(job.id), job.kind, str(job.state), first_line(job.reason))


QUEUES = ("queue", ">ready", ">later", ">blocked", ">running", ">dead", ">oldest", ">done/s", ">bad/s")

VIEWS = (
    View("queues", QUEUES, _queues),
    View("running", ("kind", ">for", "progress", "id", ">worker", "message"), _running),
    View("workers", (">number", "name", "where", "", ">running", ">seen", "queues"), _workers),
    View("dead", ("id", "kind", "state", "reason"), _dead),
)  # fmt: skip


def bar(progress: dict[str, Any] | None) -> str:
    """Return the progress of a run: a bar if the total is known."""
    done, of = (progress or {}).get("done"), (progress or {}).get("of")
    if done is None:
        return ""
    if not of:
        return f"{done:g}"
    share = min(max(done / of, 0), 1)
    full = round(share * BAR)
    return f"{'█' * full}{'░' * (BAR - full)} {share:.0%}"


def cell(value: Any) -> str:
    """Format a value for a cell."""
    if value is None:
        return ""
    if isinstance(value, Count):
        return value.text
    return spoken(value) if isinstance(value, timedelta) else str(value)


def order(value: Any) -> Any:
    """Return the sort key of a value, which is not None."""
    return value.casefold() if isinstance(value, str) else value
