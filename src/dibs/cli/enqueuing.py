"""Many jobs from lines of JSON, in batches."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import click
import msgspec

from dibs.cli.progress import counting
from dibs.errors import DibsError
from dibs.job import NewJob

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from dibs.cli.session import Session

BATCH = 1000


def enqueue_lines(session: Session, lines: BinaryIO, queue: str, kind: str, options: dict[str, Any]) -> None:
    """Enqueue a job for each line; each batch is a transaction of its own."""
    jobs = _jobs(lines, queue, kind, options)
    done = 0
    try:
        with session.client() as client, counting(session.output, "enqueued") as advance:
            while batch := list(islice(jobs, BATCH)):
                made = client.enqueue_many(batch)
                done += len(made)
                advance(len(made))
                if session.as_json:
                    for m in made:
                        session.output.json({"id": m.id, "outcome": m.outcome})
    except (DibsError, click.ClickException):
        session.output.note(f"{done} jobs were enqueued before this:")
        raise
    if not session.as_json:
        session.output.say(f"enqueued {done} jobs")


def _jobs(lines: BinaryIO, queue: str, kind: str, options: dict[str, Any]) -> Iterator[NewJob]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            payload = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise click.ClickException(f"line {number} is not JSON: {error}") from None
        yield NewJob(queue=queue, kind=kind, payload=payload, **options)
