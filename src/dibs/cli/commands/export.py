"""``dibs export``: jobs written out, as lines of JSON or CSV."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from dibs.cli.command import Command
from dibs.cli.filters import filter_options, read_filter
from dibs.cli.progress import counted, counting
from dibs.cli.session import Session, pass_session
from dibs.cli.types import JOB_ID, KEYS
from dibs.db.calls.operate import CARRIED, EXPORTED
from dibs.export import csv_lines, lines
from dibs.mask import cover_secrets, covered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dibs.cli.session import IdGiven
    from dibs.export import Form


@click.command(cls=Command)
@filter_options
@click.option("-n", "--limit", type=click.IntRange(min=1), help="At most this many; without it, all.")
@click.option("-o", "--output", "path", type=click.Path(path_type=Path, dir_okay=False), help="A file to write to.")
@click.option("--no-payloads", is_flag=True, help="Leave out what the jobs carry: payload, headers and body.")
@click.option("--mask", type=KEYS, default="", help="Cover the values of these keys: password,token,card.")
@click.option("--before", type=JOB_ID, help="Only those older than this job, to go on from an export's last one.")
@pass_session
def export(
    session: Session,
    /,
    limit: int | None,
    path: Path | None,
    no_payloads: bool,
    mask: frozenset[str],
    before: IdGiven | None,
    **given: Any,
) -> None:
    """Write jobs out, newest first: all, or those that a filter chooses; a line of JSON each, or of CSV with --csv.

    In CSV a text that a spreadsheet would take for a formula gets an apostrophe before it.
    """
    form: Form = "csv" if session.output.as_csv else "jsonl"
    session.output.as_json = session.output.as_csv = False  # Progress goes to standard error, whatever is written out.
    names = EXPORTED if no_payloads else (*EXPORTED, *CARRIED)
    with session.client() as client, ExitStack() as stack:
        filter = read_filter(session, client, given)
        oldest = None if before is None else session.job_id(client, before)
        total = counted(session.output, lambda steps: client.count_jobs(filter, **steps), limit, oldest)
        out = stack.enter_context(_opened(path))  # Only now: a refused filter must not empty the last export.
        left = sys.maxsize if limit is None else limit
        if form == "csv":
            out.write(csv_lines([names]))
        with counting(session.output, "exported", total) as advance:
            for part in client.export(filter, payloads=not no_payloads, before=oldest):
                jobs = (cover_secrets(job, lambda value: covered(value, mask)) for job in part.jobs[:left])
                out.write(lines(form, jobs, names))
                advance(min(left, len(part.jobs)))
                left -= min(left, len(part.jobs))
                if not left:
                    break


@contextmanager
def _opened(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    try:
        file = path.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from None
    with file:
        yield file
