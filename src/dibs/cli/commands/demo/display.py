"""How the demo is shown: live in a terminal, as plain lines in a pipe."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dibs.cli.output import STYLES
from dibs.states import State

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

    from dibs.cli.commands.demo.tally import Moment, Tally
    from dibs.cli.output import Output

SHOWN = [state.value for state in State if state not in {State.UNKNOWN, State.BLOCKED}]
BAR = 16
FEW = 2
"""How many events of a sort a pipe gets to read."""
MARKS = {
    "succeeded": ("✓", "green"),
    "retried": ("↻", "yellow"),
    "snoozed": ("z", "cyan"),
    "failed": ("✗", "red"),
    "exhausted": ("✗", "red"),
    "expired": ("~", "bright_black"),
    "cancelled": ("-", "bright_black"),
    "crash": ("!", "bold red"),
    "lost": ("+", "magenta"),
    "brought_back": ("↑", "bold green"),
    "phase": ("▸", "bold"),
    "enqueued": ("→", "blue"),
}


@contextmanager
def showing(output: Output, tally: Tally) -> Iterator[None]:
    """Show the tally for as long as the block lasts."""
    if output.as_json:
        yield
    elif output.out.is_terminal:
        with Live(get_renderable=lambda: picture(tally), console=output.out, refresh_per_second=12):
            yield
    else:
        tally.listen = Lines(output.out, tally).hear
        yield


def picture(tally: Tally) -> RenderableType:
    """The whole display, as of now."""
    done = Table.grid(expand=True, padding=(0, 1))
    done.add_column(ratio=1)
    done.add_column(justify="right", no_wrap=True)
    bar = ProgressBar(total=max(tally.total, 1), completed=tally.ended, complete_style="green", finished_style="green")
    done.add_row(bar, f"{tally.ended}/{tally.total} ended · {tally.elapsed:.1f} s")
    body = Table.grid(expand=True, padding=(0, 1))
    body.add_column(no_wrap=True)
    body.add_column(ratio=1)
    body.add_row(
        Panel(_states(tally), title="jobs by state", border_style="dim"),
        Panel(_events(tally), title="what happens", border_style="dim"),
    )
    return Group(Text(f"▸ {tally.phase}", "bold", no_wrap=True), done, body)


def _states(tally: Tally) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(width=BAR)
    for state in SHOWN:
        count = tally.states[state]
        length = min(BAR, -(-count * BAR // max(tally.total, 1)))
        style = STYLES[state]
        table.add_row(Text(state, style if count else "dim"), str(count), Text("█" * length, style))
    return table


def _events(tally: Tally) -> Text:
    lines = [_line(event) for event in tally.recent]
    lines += [Text("")] * (len(SHOWN) - 1 - len(lines))
    if done := tally.last_success:
        lines.append(_line(replace(done, times=tally.happened["succeeded"])))
    return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)


def _line(event: Moment) -> Text:
    mark, style = MARKS[event.what]
    times = f" ({event.times})" if event.times > 1 else ""
    return Text.assemble((f"{event.at:5.1f} ", "dim"), (f"{mark} ", style), event.text, (times, "bold"))


class Lines:
    """Plain lines: the first few events of each sort, and how far it is now and then."""

    def __init__(self, out: Console, tally: Tally) -> None:
        self._out = out
        self._tally = tally
        self._heard: Counter[str] = Counter()
        self._next = 1.0

    def hear(self, event: Moment) -> None:
        """Write an event, if it is news."""
        self._heard[event.what] += 1
        if self._heard[event.what] <= FEW or event.what == "phase":
            self._out.print(f"{event.at:5.1f} s  {event.text}", soft_wrap=True)
        if event.at >= self._next:
            self._next = event.at + 1
            self._out.print(f"{event.at:5.1f} s  {self._tally.ended} of {self._tally.total} ended", soft_wrap=True)
