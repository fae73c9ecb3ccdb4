"""Progress bars, where someone looks."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dibs.cli.output import Output


@contextmanager
def counting(output: Output, what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Yields a function to advance by; shows a bar on standard error if that is a terminal."""
    if output.as_json or not output.err.is_terminal:
        yield lambda _: None
        return
    columns = (SpinnerColumn(), TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=output.err, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)
