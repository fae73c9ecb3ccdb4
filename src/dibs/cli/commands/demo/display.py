"""The display of the demo: a live picture in a terminal, plain lines in a pipe, and a summary."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dibs.cli.output import STYLES
from dibs.states import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console, RenderableType

    from dibs.cli.commands.demo.tally import Moment, Tally
    from dibs.cli.output import Output

SHOWN = [state for state in State if state not in {State.UNKNOWN, State.BLOCKED}]
BAR = 40
"""The width of the bar of a state that has all jobs."""
RECENT = 8
"""The number of events in the picture."""
FEW = 2
"""The number of events of each sort that a pipe gets."""
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
    "enqueued": ("→", "blue"),
    "released": ("←", "bright_black"),
}


@contextmanager
def showing(output: Output, tally: Tally) -> Iterator[None]:
    """Show the tally until the block ends."""
    if output.as_json:
        yield
    elif output.out.is_terminal:
        with Live(get_renderable=lambda: picture(tally), console=output.out, refresh_per_second=12):
            yield
    else:
        tally.listen = _writer(output.out, tally)
        yield


def picture(tally: Tally) -> RenderableType:
    """Return the current display: the phase, a bar, the jobs by state, and the recent events."""
    total = max(tally.total, 1)
    done = Table.grid(expand=True, padding=(0, 1))
    done.add_column(ratio=1)
    bar = ProgressBar(total=total, completed=tally.ended, complete_style="green", finished_style="green")
    done.add_row(bar, Text(f"{tally.ended}/{tally.total} ended · {tally.elapsed:.1f} s"))
    states = Table.grid(padding=(0, 1))
    for state in SHOWN:
        count, style = tally.states[state], STYLES[state]
        name = Text(state, style if count else "dim")
        states.add_row(name, Text(f"{count:>5}"), Text("█" * -(-count * BAR // total), style))
    events = [*tally.events.values()][-RECENT:]
    title = Text(f"▸ {tally.phase}", "bold", no_wrap=True)
    return Group(title, done, Text(), states, Text(), *map(_line, events))


def _line(event: Moment) -> Text:
    mark, style = MARKS[event.sort]
    times = f" ({event.times})" if event.times > 1 else ""
    line = Text.assemble((f"{event.at:5.1f} ", "dim"), (f"{mark} ", style), event.text, (times, "bold"))
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _writer(out: Console, tally: Tally) -> Callable[[Moment], None]:
    """Return a function that writes the first few events of each sort, and the progress every second."""
    written = Counter[str]()
    progress_at = 1.0

    def write(event: Moment) -> None:
        nonlocal progress_at
        written[event.sort] += 1
        if written[event.sort] <= FEW or event.sort == "phase":
            out.print(f"{event.at:5.1f} s  {event.text}", soft_wrap=True)
        if event.at >= progress_at:
            progress_at = event.at + 1
            out.print(f"{event.at:5.1f} s  {tally.ended} of {tally.total} ended", soft_wrap=True)

    return write


def summarize(output: Output, summary: dict[str, Any], next_steps: str) -> None:
    """Print the summary of a tally, whether all went well, and the next commands to try."""
    n = Counter[str](summary["happened"])
    states = ", ".join(f"{count} {state}" for state, count in sorted(summary["states"].items(), reverse=True))
    output.say("")
    output.facts(
        [
            ("jobs", f"{summary['jobs']} in {summary['seconds']:.1f} s: {states}"),
            ("runs", f"{summary['runs']}, {summary['runs_per_second']:.0f} per second (the jobs only sleep)"),
            ("retried", f"{n['retried']} times after an error, {n['lost']} after a worker vanished"),
            ("snoozed", f"{n['snoozed']} times"),
            ("dead", ", ".join(f"{n[state]} {state}" for state in ("failed", "exhausted", "expired", "cancelled"))),
            ("brought back", f"{n['brought_back']}" + ("" if summary["wrong"] else ", and all of them succeeded")),
        ]
    )
    for line in summary["wrong"][:10]:
        output.say(f"wrong: {line}", "red")
    if summary["ok"]:
        output.say("every job ended, and ended once", "bold green")
    output.say("")
    output.say(f"next{next_steps}")
