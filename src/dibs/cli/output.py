"""Output for people and programs: text and tables, or one JSON document."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dibs.cli.text import clean
from dibs.export import csv_lines, lines
from dibs.traces import said
from dibs.units import spoken

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

GAP = 2
"""The space between two columns."""
LEAST = 8
"""The least width of the last column."""
ENOUGH = 20
"""The width of the last column that other columns make room for."""

WIDE = 1000
"""The width when output is piped: no line is wrapped or cut."""

STYLES = {
    "scheduled": "cyan",
    "ready": "blue",
    "blocked": "magenta",
    "running": "yellow",
    "succeeded": "green",
    "failed": "red",
    "exhausted": "red",
    "expired": "bright_black",
    "cancelled": "bright_black",
}
"""The colour of each state."""


class Output:
    """Standard output for answers, standard error for everything else."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.as_csv = False
        self._csv_heading: list[str] | None = None
        self.out = _console(sys.stdout.isatty(), stderr=False)
        self.err = _console(sys.stderr.isatty(), stderr=True)

    def say(self, text: str, style: str = "") -> None:
        """Print a line of an answer."""
        self.out.print(Text(clean(text), style), soft_wrap=True)

    def note(self, text: str, style: str = "dim") -> None:
        """Print a remark to standard error, away from a pipe."""
        if not self.as_json:
            self.err.print(Text(clean(text), style), soft_wrap=True)

    def json(self, value: Any) -> None:
        """Print one JSON document on one line; with --csv, lines of CSV."""
        if self.as_csv:
            self._csv(plain(value))
            sys.stdout.flush()
            return
        sys.stdout.write(msgspec.json.encode(plain(value)).decode() + "\n")
        sys.stdout.flush()

    def _csv(self, value: Any) -> None:
        """Print a list as a line of CSV for each of its objects; anything else as one line.

        The names of the columns come first, and again if they differ from those printed before.
        """
        rows = value if isinstance(value, list) else [value]
        rows = [row if isinstance(row, dict) else {"value": row} for row in rows]
        names = list(dict.fromkeys(name for row in rows for name in row))
        if names and names != self._csv_heading:
            self._csv_heading = names
            sys.stdout.write(csv_lines([names]))
        sys.stdout.write(lines("csv", rows, names))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Print rows under a heading. A column named ``>n`` holds numbers; a state gets its colour.

        On a terminal a text in the last column is cut to the rest of the width, and columns named ``?n`` are left out
        if they do not fit. Nothing else is cut.
        """
        heading = [Text(name.strip(">?"), "bold") for name in columns]
        lines = [heading, *([_cell(value) for value in row] for row in rows)]
        widths = [max(line[n].cell_len for line in lines) for n in range(len(columns))]
        kept = [*range(len(columns))]
        if self.out.is_terminal:
            kept = fitting(columns, widths, self.out.width)
            if ">" not in columns[-1]:
                widths[-1] = max(LEAST, min(widths[-1], self.out.width - _total(widths, kept[:-1]) - GAP))
        for line in lines:
            for n in kept:
                line[n].truncate(widths[n], overflow="ellipsis")
                line[n].align("right" if ">" in columns[n] else "left", widths[n])
            self._line(Text(" " * GAP).join(line[n] for n in kept))

    def _line(self, line: Text) -> None:
        line.rstrip()
        if self.out.is_terminal:
            self.out.print(line, soft_wrap=True)
        else:
            sys.stdout.write(line.plain + "\n")

    def facts(self, pairs: Iterable[tuple[str, *tuple[Any, ...]]]) -> None:
        """Print names and values, one to a line, each with its remarks."""
        shown = Table.grid(padding=(0, 2))
        for name, *values in pairs:
            shown.add_row(Text(name, "bold"), *(_cell(value) for value in values))
        self._show(shown)

    def _show(self, table: Table) -> None:
        if self.out.is_terminal:
            self.out.print(table)
            return
        with self.out.capture() as text:
            self.out.print(table)
        sys.stdout.writelines(line.rstrip() + "\n" for line in text.get().splitlines())


def fitting(columns: Sequence[str], widths: Sequence[int], width: int) -> list[int]:
    """Return the columns that fit: those marked ``?`` go, from the right, until the others have room."""
    kept = [*range(len(columns))]
    needed = list(widths)
    if ">" not in columns[-1]:
        needed[-1] = min(widths[-1], ENOUGH)
    for n in reversed(kept.copy()):
        if _total(needed, kept) <= width:
            break
        if "?" in columns[n]:
            kept.remove(n)
    return kept


def _total(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[n] + GAP for n in kept) - GAP


def _console(terminal: bool, *, stderr: bool) -> Console:
    width = None if terminal else WIDE
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def _cell(value: Any) -> Text:
    text = shown(value)
    return Text(text, STYLES.get(text, ""))


def shown(value: Any) -> str:
    """Format a value for people."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
        case timedelta():
            return spoken(value)
        case _:
            return clean(str(value))


def read_time(text: str | None) -> datetime | None:
    """Parse a time of a JSON document."""
    return None if text is None else datetime.fromisoformat(text)


def plain(value: Any) -> Any:
    """Convert a value for JSON; durations become seconds."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    match value:
        case dict():
            return {str(name): plain(v) for name, v in value.items()}
        case list() | tuple():
            return [plain(v) for v in value]
        case timedelta():
            return value.total_seconds()
        case _:
            return value


def first_line(text: str | None) -> str | None:
    """Return the message of an error without its traceback."""
    return said(text) if text else text
