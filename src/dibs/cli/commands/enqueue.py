"""``dibs enqueue``: put a job in, or many."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.core import ParameterSource

from dibs.cli.command import Command
from dibs.cli.payload import read_payload
from dibs.cli.progress import counting
from dibs.cli.session import Session, pass_session
from dibs.cli.types import BACKOFF, DURATION, DURATION_OR_NONE, HEADER, MOMENT, QUEUE, UNITS, WHOLE_ID, by_name
from dibs.errors import DibsError
from dibs.job import NewJob
from dibs.policy import FOREVER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

BATCH = 1000


@click.command(cls=Command)
@click.argument("queue", type=QUEUE)
@click.argument("kind")
@click.argument("payload", required=False)
@click.option("--file", type=click.File("rb"), help="Read the payload from a file.")
@click.option("--bytes", "raw", is_flag=True, help="The payload is bytes, not JSON.")
@click.option("--content-type", help="What the bytes are, such as image/png.")
@click.option("--many", is_flag=True, help="One job for each line of standard input (or --file): a JSON payload.")
@click.option("--priority", type=int, help="-100 to 100; higher goes first.")
@click.option("--delay", type=DURATION, help="Due this much later.")
@click.option("--due-at", type=MOMENT, help="Due at this time.")
@click.option("--ttl", type=DURATION_OR_NONE, help="Expires this long after it was first due; none for never.")
@click.option("--deadline", type=MOMENT, help="Expires at this time.")
@click.option("--shard-key", help="Jobs with the same key go to the same shard, if the queue has shards.")
@click.option("--dedup-key", help="A duplicate if another job of the queue holds this key.")
@click.option("--dedup", is_flag=True, default=None, help="Make the key from the kind and the payload.")
@click.option(
    "--dedup-scope",
    type=click.Choice(["waiting", "unfinished", "window"]),
    help="How long the key is held: while the job waits, until it ends, or for --dedup-for.",
)
@click.option("--dedup-for", type=DURATION, help="Hold the key for this long.")
@click.option(
    "--on-duplicate", type=click.Choice(["keep", "refuse", "replace"]), help="What to do if another job holds the key."
)
@click.option("--group", help="The group it belongs to; the groups of a queue take turns.")
@click.option("--cost", type=int, help="What it takes of its group's share; 1 if not given.")
@click.option("--resource", "resources", type=UNITS, multiple=True, help="Units it needs of a limit, such as gpu=1.")
@click.option("--header", "headers", type=HEADER, multiple=True, help="Sent along; give it several times.")
@click.option("--max-attempts", type=int, help="How often it is tried before it is exhausted.")
@click.option("--backoff", type=BACKOFF, help="exponential:1s,cap=10m,jitter=0.1, constant:5s or list:1s,5s,30s.")
@click.option("--history", type=click.Choice(["all", "failures", "none"]), help="Which of its attempts are kept.")
@click.option("--lease", type=DURATION, help="How long a worker may hold it without renewing.")
@click.option("--lease-growth", type=float, help="Each attempt's lease is this many times the one before.")
@click.option("--lease-cap", type=DURATION, help="Its lease does not grow beyond this.")
@click.option("--id", type=WHOLE_ID, help="Your own UUIDv7; the same id twice is one job.")
@pass_session
def enqueue(
    session: Session, /, queue: str, kind: str, payload: str | None, file: BinaryIO | None, raw: bool, many: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Enqueue a job of KIND to QUEUE. PAYLOAD is JSON; - reads it from standard input."""
    _check(payload, file, raw, many, options)
    given = {name: value for name, value in options.items() if value is not None and value != ()}
    for name in {"headers", "resources"} & given.keys():
        given[name] = by_name(given[name])
    if click.get_current_context().get_parameter_source("ttl") is not ParameterSource.DEFAULT:
        given.setdefault("ttl", FOREVER)
    if many:
        _enqueue_lines(session, file or sys.stdin.buffer, queue, kind, given)
        return
    job = NewJob(queue=queue, kind=kind, payload=read_payload(payload, file, raw=raw), **given)
    with session.client() as client:
        [made] = client.enqueue_many([job])
    if session.as_json:
        session.output.json({"id": made.id, "outcome": made.outcome, "queue": queue, "kind": kind})
    elif made.outcome == "duplicate":
        session.output.say(f"duplicate of {made.id}", "yellow")
    else:
        session.output.say(f"{made.outcome} {made.id}")


def _check(payload: str | None, file: BinaryIO | None, raw: bool, many: bool, options: dict[str, Any]) -> None:
    if payload is not None and (file is not None or many):
        raise click.UsageError("give the payload once: as an argument, by --file, or by --many")
    if many and (raw or options["id"] or options["dedup_key"]):
        raise click.UsageError("--many takes JSON lines, and no --bytes, --id or --dedup-key")
    if options["content_type"] and not raw:
        raise click.UsageError("--content-type is for --bytes; JSON is JSON")


def _enqueue_lines(session: Session, lines: BinaryIO, queue: str, kind: str, options: dict[str, Any]) -> None:
    """Enqueue a job for each line; each batch is a separate transaction."""
    jobs = _jobs(lines, queue, kind, options)
    read = duplicates = 0
    try:
        with session.client() as client, counting(session.output, "enqueued") as advance:
            while batch := list(islice(jobs, BATCH)):
                made = client.enqueue_many(batch)
                read += len(made)
                duplicates += sum(m.outcome == "duplicate" for m in made)
                advance(len(made))
                if session.as_json:
                    for m in made:
                        session.output.json({"id": m.id, "outcome": m.outcome})
    except (DibsError, click.ClickException):
        session.output.note(f"{read - duplicates} jobs were enqueued before this:")
        raise
    if not session.as_json:
        session.output.say(_counted(read, duplicates))


def _counted(read: int, duplicates: int) -> str:
    jobs = f"enqueued {read - duplicates} jobs"
    return f"{jobs}; {duplicates} duplicate{'s' * (duplicates > 1)}" if duplicates else jobs


def _jobs(lines: BinaryIO, queue: str, kind: str, options: dict[str, Any]) -> Iterator[NewJob]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            payload = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise click.ClickException(f"line {number} is not JSON: {error}") from None
        yield NewJob(queue=queue, kind=kind, payload=payload, **options)
